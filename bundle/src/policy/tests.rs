use std::path::Path;

use super::*;
use crate::units::format_duration;

/// Reads the section of a file `/p.yaml`.
fn read(text: &str) -> Result<Policy, String> {
    let section: Section =
        serde_saphyr::from_str(text).map_err(|why: serde_saphyr::Error| why.without_snippet().to_string())?;
    section.read(Path::new("/p.yaml"), Some(Path::new("/home/ann"))).map_err(|why| why.to_string())
}

/// Every key of the documentation, with another value than its default.
const ALL: &str = r#"
min_cert_level: 2
cert_level_mode: warn
allowed_origins: [official, verified]
warning_threshold: 70
unscored: refuse
hub_levels: ignore
min_tier: 2
signatures:
  - {names: ["acme/*"], keys: [/etc/smcp/acme.pub, ~/old.pub]}
  - {names: ["ghcr.io/acme/*"], identity: me@acme.example, issuer: https://id.acme.example}
certifiers:
  - {key: /etc/smcp/hub.pub, predicates: [certification], names: ["*"], max_level: 1}
ceilings:
  network: {allow: ["*.acme.example:443"], deny: [evil.acme.example]}
  filesystem: {allow: [{path: "~/projects", access: rw}], deny: ["~/.ssh"]}
  subprocess: {allow: ["/usr/bin/git"]}
  env: {deny: ["AWS_*"]}
  limits: {memory: 2G, cpu: 4000, pids: 1024, fds: 4096, timeout: 7d, cpu_time: 24h}
tools: {pin: block, allow: [read_*], deny: [rm]}
warning: {channels: [notification]}
new_permissions: refuse
min_release_age: 7d
install_scripts: refuse
"#;

#[test]
fn every_key_is_read_with_its_line() {
    let policy = read(ALL).unwrap();
    let line = |line| Source::File { path: Path::new("/p.yaml").into(), line };
    assert_eq!(policy.min_cert_level(), Sourced { value: 2, source: line(2) });
    assert_eq!(policy.cert_level_mode().value, LevelMode::Warn);
    assert_eq!(policy.warning_threshold(), Sourced { value: 70, source: line(5) });
    assert_eq!(policy.unscored().value, Unscored::Refuse);
    assert_eq!(policy.hub_levels().value, HubLevels::Ignore);
    assert_eq!(policy.min_tier().value, 2);
    assert_eq!(policy.new_permissions(), Sourced { value: NewPermissions::Refuse, source: line(22) });
    assert_eq!(policy.install_scripts(), Sourced { value: InstallScripts::Refuse, source: line(24) });
    assert_eq!(policy.min_release_age, Some(Sourced { value: Duration::from_secs(7 * 86_400), source: line(23) }));
    assert_eq!(policy.signatures[0].value.by[1], Who::Key("/home/ann/old.pub".into()));
    assert_eq!(policy.signatures[1].source, line(11));
    let certifier = &policy.certifiers[0].value[0];
    assert_eq!((certifier.max_level, &certifier.predicates), (1, &BTreeSet::from([Predicate::Certification])));
    let files = &policy.ceilings.filesystem;
    assert_eq!(files.allow[0].value[0].path, Path::new("/home/ann/projects"));
    assert_eq!(files.deny[0], Sourced { value: "/home/ann/.ssh".into(), source: line(16) });
    assert_eq!(policy.ceilings.limits.memory, Some(Sourced { value: 2 << 30, source: line(19) }));
    assert_eq!(policy.tools.judge("rm"), Err(&line(20)));
    assert_eq!(policy.tools.judge("write"), Err(&line(20)));
    assert_eq!(policy.tools.judge("read_file"), Ok(()));
    assert_eq!(policy.warning.channels().value, BTreeSet::from([Channel::Notification]));
}

#[test]
fn what_nobody_says_is_as_documented() {
    let policy = Policy::default();
    assert_eq!(policy, read("{}").unwrap());
    let words = (
        policy.min_cert_level().value,
        policy.cert_level_mode().value.to_string(),
        policy.warning_threshold().value,
        policy.unscored().value.to_string(),
        policy.hub_levels().value.to_string(),
        policy.min_tier().value,
        policy.tools.pin().value.to_string(),
        policy.new_permissions().value.to_string(),
    );
    let text = String::from;
    assert_eq!(words, (0, text("strict"), 80, text("warn"), text("trust"), 1, text("warn"), text("ask")));
    assert_eq!(policy.warning.channels().value.len(), 4);
    // Empty lists demand nothing, but where they are ceilings.
    assert_eq!(read("{allowed_origins: [], tools: {allow: [], deny: []}}").unwrap(), Policy::default());
    assert_ne!(read("{ceilings: {subprocess: {allow: []}}}").unwrap(), Policy::default());
}

/// T2: other words than those of the documentation, keys without a value, things of another kind.
#[test]
fn what_is_no_value_is_named_with_line_and_key() {
    for (text, says) in [
        ("cert_level_mode: Strict", "/p.yaml:1: policy.cert_level_mode: \"Strict\" is none of disabled, warn, strict"),
        ("\ncert_level_mode: off", "/p.yaml:2: policy.cert_level_mode: \"off\" is none of"),
        ("cert_level_mode: \"\"", "policy.cert_level_mode"),
        ("min_cert_level: 4", "policy.min_cert_level: \"4\" is no whole number from 0 to 3"),
        ("min_cert_level: -1", "policy.min_cert_level"),
        ("min_cert_level: +1", "policy.min_cert_level"),
        ("min_cert_level: 1.5", "policy.min_cert_level"),
        ("min_cert_level: true", "policy.min_cert_level"),
        ("min_cert_level:", "line 1"),
        ("min_cert_level: ~", "line 1"),
        ("min_cert_level: [2]", "line 1"),
        ("min_cert_level: {a: 2}", "line 1"),
        ("min_cert_levle: 2", "min_cert_levle"),
        ("{min_cert_level: 2, min_cert_level: 0}", "duplicate"),
        ("warning_threshold: 101", "policy.warning_threshold"),
        ("min_tier: 0", "policy.min_tier"),
        ("min_release_age: 7", "policy.min_release_age"),
        ("allowed_origins: [official, Official]", "policy.allowed_origins[1]"),
        ("allowed_origins: official", "line 1"),
        ("allowed_origins:", "line 1"),
        ("signatures: [{names: [a], kyes: [/a]}]", "kyes"),
        ("signatures: [{names: [a]}]", "policy.signatures[0]: it names neither"),
        ("signatures: [{keys: [/a]}]", "policy.signatures[0].names"),
        ("signatures: [{names: [], keys: [/a]}]", "policy.signatures[0].names"),
        ("signatures: [{names: [a], keys: [a]}]", "policy.signatures[0].keys[0]: \"a\" is no absolute path"),
        ("signatures: [{names: [a], identity: b}]", "identity and issuer go together"),
        ("certifiers: [{names: ['*']}]", "policy.certifiers[0]: it names one key"),
        ("certifiers: [{names: ['*'], key: /a, predicates: [certify]}]", "policy.certifiers[0].predicates[0]"),
        ("certifiers: [{names: ['*'], key: /a, max_level: 9}]", "policy.certifiers[0].max_level"),
        ("ceilings: {network: {allow: [a.test, '*']}}", "policy.ceilings.network.allow[1]: `*`"),
        ("ceilings: {network: {alow: []}}", "alow"),
        ("ceilings: {filesystem: {allow: [{path: /a, access: rx}]}}", "policy.ceilings.filesystem.allow[0].access"),
        ("ceilings: {filesystem: {allow: [{path: /a}]}}", "policy.ceilings.filesystem.allow[0]: it has a path"),
        ("ceilings: {filesystem: {deny: [../a]}}", "policy.ceilings.filesystem.deny[0]"),
        ("ceilings: {filesystem: {deny:}}", "line 1"),
        ("ceilings: {subprocess: {allow: [git]}}", "policy.ceilings.subprocess.allow[0]"),
        ("ceilings: {env: {deny: ['']}}", "policy.ceilings.env.deny[0]"),
        ("ceilings: {env: {allow: [A]}}", "allow"),
        ("ceilings: {limits: {memory: 2GB}}", "policy.ceilings.limits.memory"),
        ("tools: {pin: yes}", "policy.tools.pin"),
        ("warning: {channels: [stderr]}", "policy.warning.channels[0]"),
        ("new_permissions: never", "policy.new_permissions: \"never\" is none of allow, ask, refuse"),
        ("[", "line 1"),
        ("- min_cert_level: 2", "line 1"),
        ("min_cert_level: 2", ""),
    ] {
        match (says, read(text)) {
            ("", read) => assert!(read.is_ok(), "{text}: {read:?}"),
            (says, Err(error)) => assert!(error.contains(says), "{text}: {error}"),
            (_, Ok(policy)) => panic!("{text}: {policy:?}"),
        }
    }
}

#[test]
fn variables_are_read_as_files_are() {
    let of = |key: &str, value: &str| Policy::of_variable("MCP_POLICY_X", key, value, None);
    for (key, value, file) in [
        ("min_cert_level", "2", "min_cert_level: 2"),
        ("cert_level_mode", "warn", "cert_level_mode: warn"),
        ("allowed_origins", "official,verified", "allowed_origins: [official, verified]"),
        ("warning_threshold", "90", "warning_threshold: 90"),
        ("unscored", "allow", "unscored: allow"),
        ("hub_levels", "ignore", "hub_levels: ignore"),
        ("min_tier", "3", "min_tier: 3"),
        ("new_permissions", "allow", "new_permissions: allow"),
        ("ceilings_network_allow", "a.test:1,2 b.test", "ceilings: {network: {allow: ['a.test:1,2', b.test]}}"),
        ("ceilings_network_deny", "a.test", "ceilings: {network: {deny: [a.test]}}"),
        ("ceilings_subprocess_allow", "", "ceilings: {subprocess: {allow: []}}"),
        ("ceilings_env_deny", "AWS_* X", "ceilings: {env: {deny: ['AWS_*', X]}}"),
        ("ceilings_limits_memory", "1G", "ceilings: {limits: {memory: 1G}}"),
        ("ceilings_limits_cpu_time", "1h", "ceilings: {limits: {cpu_time: 1h}}"),
        ("tools_pin", "block", "tools: {pin: block}"),
        ("tools_allow", "a b", "tools: {allow: [a, b]}"),
        ("warning_channels", "result tools", "warning: {channels: [tools, result]}"),
    ] {
        let variable = of(key, value).unwrap().unwrap();
        let mut texts = [format!("{variable:?}"), format!("{:?}", read(file).unwrap())];
        for text in &mut texts {
            *text = text.replace("Variable(\"MCP_POLICY_X\")", "S").replace("File { path: \"/p.yaml\", line: 1 }", "S");
        }
        assert_eq!(texts[0], texts[1]);
    }
    for key in ["min_cert_levle", "signatures", "certifiers", "ceilings_filesystem_deny", "ceilings_limits_x", ""] {
        assert!(of(key, "1").is_none(), "{key}");
    }
    for (key, value) in [("min_cert_level", ""), ("cert_level_mode", "Strict"), ("unscored", "none")] {
        let error = of(key, value).unwrap().unwrap_err().to_string();
        assert!(error.starts_with(&format!("MCP_POLICY_X: policy.{key}: ")), "{error}");
    }
    assert_eq!(Policy::of_flags(Some("2"), None).unwrap().min_cert_level().source, Source::Flag("--min-cert-level"));
    assert!(Policy::of_flags(None, Some("x")).unwrap_err().starts_with("--warning-threshold: "));
}

fn both(one: &str, other: &str) -> Policy {
    read(one).unwrap().stricter(read(other).unwrap())
}

#[test]
fn of_two_policies_the_stricter_value_holds() {
    let text = |policy: Policy| {
        let channels: Vec<_> = policy.warning.channels().value.iter().map(Channel::to_string).collect();
        [
            policy.min_cert_level().value.to_string(),
            policy.cert_level_mode().value.to_string(),
            policy.warning_threshold().value.to_string(),
            policy.unscored().value.to_string(),
            policy.hub_levels().value.to_string(),
            policy.min_tier().value.to_string(),
            policy.new_permissions().value.to_string(),
            policy.tools.pin().value.to_string(),
            policy.install_scripts().value.to_string(),
            policy.min_release_age.as_ref().map(|least| format_duration(least.value)).unwrap_or_default(),
            channels.join(" "),
        ]
    };
    let low = "{min_cert_level: 1, cert_level_mode: warn, warning_threshold: 50, unscored: allow, hub_levels: trust, \
        min_tier: 1, min_release_age: 1h, install_scripts: allow, new_permissions: allow, tools: {pin: allow}, warning: {channels: [result]}}";
    let high = "{min_cert_level: 3, cert_level_mode: strict, warning_threshold: 90, unscored: refuse, hub_levels: ignore, \
        min_tier: 3, min_release_age: 2d, install_scripts: refuse, new_permissions: refuse, tools: {pin: block}, warning: {channels: [result, tools]}}";
    for policy in [both(low, high), both(high, low)] {
        assert_eq!(text(policy), text(read(high).unwrap()));
    }
    assert_eq!(text(both(low, "{}")), text(read(low).unwrap()), "what only one says is as that one says");
    // A tie is the first one's.
    let tie = both("\nmin_cert_level: 2", "min_cert_level: 2").min_cert_level();
    assert_eq!(tie.source.to_string(), "/p.yaml:2");
}

/// Who demands something means the defaults of what it depends on, and nobody else can say otherwise.
#[test]
fn a_demand_cannot_be_emptied_by_another_policy() {
    let demand = "{min_cert_level: 2, warning_threshold: 90}";
    let other = "{cert_level_mode: disabled, unscored: allow, warning: {channels: []}, \
        certifiers: [{key: /mine.pub, names: ['*']}]}";
    for policy in [both(demand, other), both(other, demand)] {
        assert_eq!(policy.cert_level_mode().value, LevelMode::Strict);
        assert_eq!(policy.unscored().value, Unscored::Warn);
        assert_eq!(policy.warning.channels().value, Channel::all());
        assert!(policy.certifiers.iter().any(|list| list.value.is_empty()), "nobody's certifier counts");
    }
    // The files of one authority speak together first.
    let together = read("min_cert_level: 2").unwrap().together(read(other).unwrap());
    assert_eq!((together.cert_level_mode().value, together.certifiers.len()), (LevelMode::Disabled, 1));
}
