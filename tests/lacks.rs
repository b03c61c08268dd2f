//! Machines whose kernel lacks something of what a run with a network needs: it is named, and what can be had is had.

use serde_json::Value;

use crate::command::Smcp;
use crate::world::{World, as_each_user};
use crate::{image, place};

as_each_user! {
    without_nf_tables_only_names_are_granted,
    without_ipv6_there_is_ipv4,
    without_packet_sockets_refusals_do_not_show,
    all_of_it_is_reported_where_it_is_there,
    the_least_of_descriptors_is_enough,
}

/// `smcp run FLAGS PROBE exit 7` where a filter answers as a kernel does that lacks it.
fn run<'w>(world: &'w World, lacks: &str, flags: &[&str]) -> Smcp<'w> {
    let smcp = place::smcp().to_str().expect("the shared place is UTF-8");
    let line = [&[lacks, smcp, "run"], flags, &[image::probe_reference(), "exit", "7"]].concat();
    world.bare(&line)
}

/// What the newest run measured of its network.
fn egress(world: &World) -> Value {
    let entries = world.audit();
    let begin = entries.iter().rev().find(|entry| entry["event"] == "begin").expect("a run was begun");
    begin["layers"]["egress"].clone()
}

const NAMED: [&str; 2] = ["--allow-net", "granted.test:8443"];

fn without_nf_tables_only_names_are_granted(world: &World) {
    let ended = run(world, "without-netfilter", &["--allow-all-net"]).run().expect(125);
    ended.explains(&["nf_tables", "Protocol not supported", "--allow-net"]);
    run(world, "without-netfilter", &NAMED).run().expect(7);
    assert_eq!(egress(world), "full");
}

fn without_ipv6_there_is_ipv4(world: &World) {
    for flags in [&NAMED[..], &["--allow-all-net"], &["--allow-host-port", "5432"]] {
        run(world, "without-ipv6", flags).run().expect(7);
        let status = egress(world);
        assert!(status.as_str().unwrap().starts_with("partial: no IPv6: "), "{status}");
    }
}

fn without_packet_sockets_refusals_do_not_show(world: &World) {
    run(world, "without-packets", &NAMED).run().expect(7);
    let status = egress(world);
    assert!(status.as_str().unwrap().starts_with("partial: attempts at ports"), "{status}");
}

/// Where the machine has all of it, as `doctor` says too; and a run without a network has no such layer.
fn all_of_it_is_reported_where_it_is_there(world: &World) {
    let doctor = world.smcp(["doctor", "--json"]).run().ok().json();
    world.caged(&NAMED, &["exit", "7"]).run().expect(7);
    assert_eq!(doctor["egress"], egress(world), "{doctor}");
    world.caged(&["--allow-all-net"], &["exit", "7"]).run().expect(7);
    assert_eq!(doctor["egress"], egress(world), "{doctor}");
    world.caged(&[], &["exit", "7"]).run().expect(7);
    assert_eq!(egress(world), Value::Null);
}

/// As few descriptors as can be asked for do for a network of many ports, and one less is told before anything is built.
fn the_least_of_descriptors_is_enough(world: &World) {
    let ports: Vec<String> = (8000..8060).map(|port: u16| port.to_string()).collect();
    let many = format!("198.51.100.7:{}", ports.join(","));
    let project = world.text("project");
    world.caged(&["--fds", "24", "--allow-net", &many, "--allow-write", &project], &["exit", "7"]).run().expect(7);
    world.caged(&["--fds", "23"], &["exit", "7"]).run().expect(2).explains(&["--fds", "24"]);
}
