//! The sockets that lead out of a cage, against a server that wants them for itself, or wants them closed to others. The host has a
//! proxy at which nobody is, so that the granted name is asked of nobody and nothing leaves this machine.

use serde_json::Value;

use super::tier::Tier;
use super::{Grants, NAMED};
use crate::command::Smcp;
use crate::world::{World, as_each_user};

as_each_user! {
    a_listener_of_the_supervisors_is_not_to_be_joined,
    who_is_there_first_has_only_itself,
    the_server_holds_none_of_the_sockets,
    a_flood_of_refusals_ends_nothing,
}

fn tiers(world: &World) -> impl Iterator<Item = Tier> {
    Tier::offered(world).into_iter().filter(|tier| tier.supports(Grants::Network, world))
}

/// The probe with the name granted.
fn caged<'w>(world: &'w World, tier: Tier, verb: &[&str]) -> Smcp<'w> {
    tier.caged(world, &["--allow-net", NAMED], verb).env("HTTPS_PROXY", "http://127.0.0.1:1")
}

/// What the end entry of the newest run says of the network.
#[track_caller]
fn totals(world: &World) -> Value {
    let end = world.last_end();
    assert!(end["egress"].is_object(), "{end}");
    end["egress"].clone()
}

/// No option of socket(7) and no other form of the address lets a server, which has the same uid as smcp outside, listen where
/// the supervisor does. Outside the same works: a listener that shares its port is joined.
fn a_listener_of_the_supervisors_is_not_to_be_joined(world: &World) {
    const EADDRINUSE: i64 = 98;
    for tier in tiers(world) {
        let said = caged(world, tier, &["take-over", "granted.test", "8443"]).run().ok().json();
        let mut ways = said.as_object().unwrap().clone();
        assert_eq!(ways.remove("a connection"), Some("somebody".into()), "{tier}: {said}");
        assert!(ways.len() >= 28 && ways.values().all(|became| *became == EADDRINUSE), "{tier}: {said}");
        // It was smcp that took it, and found nobody.
        let refused = totals(world)["refused"].clone();
        let of_name = refused.as_array().unwrap().iter().find(|refused| refused["host"] == "granted.test").cloned();
        assert_eq!(of_name.unwrap_or_default()["why"], "proxy-failed", "{tier}: {refused}");
    }
}

/// A server that listens on the port before it asks for the name reaches itself or nobody: what it meant for the name goes nowhere.
fn who_is_there_first_has_only_itself(world: &World) {
    for tier in tiers(world) {
        let said = caged(world, tier, &["be-first", "granted.test", "8443"]).run();
        let said = said.text();
        assert!(!said.contains("somebody"), "{tier}: {said}");
        assert_eq!(totals(world)["granted"], serde_json::json!([]), "{tier}");
    }
}

/// The supervisor's sockets, and PID 1's end of the pair by which it gets them, are nowhere inside.
fn the_server_holds_none_of_the_sockets(world: &World) {
    for tier in tiers(world) {
        let fds = caged(world, tier, &["fds"]).run().ok().json();
        let numbers: Vec<_> = fds.as_object().unwrap().keys().cloned().collect();
        assert_eq!(numbers, ["0", "1", "2"], "{tier}: {fds}");
        let interfaces = caged(world, tier, &["interfaces"]).run().ok().json();
        assert_eq!(interfaces, serde_json::json!(["lo"]), "{tier}");
    }
}

/// A server that has thousands of connections refused goes on, and so does smcp, which counts some of them in few lines.
fn a_flood_of_refusals_ends_nothing(world: &World) {
    let lines = || world.audit_text().lines().count();
    for tier in tiers(world) {
        let before = lines();
        let said = caged(world, tier, &["flood-ports", "20000", "granted.test"]).run().ok().json();
        assert!(said.as_str().is_some_and(|address| address.starts_with("30.18.")), "{tier}: {said}");
        assert!(lines() - before < 2_000, "{tier}: {} lines", lines() - before);
        assert_ne!(totals(world)["refused"], serde_json::json!([]), "{tier}");
    }
}
