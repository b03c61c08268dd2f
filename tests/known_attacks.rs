//! `docs/known-attacks.md` names tests: each must be there.

use std::fs;
use std::path::Path;

use crate::escape;

/// Every test that the page names, `module::test` or `escape::AREA/NAME`.
#[test]
fn every_test_of_the_page_exists() {
    let page = include_str!("../docs/known-attacks.md");
    let mut attacks = 0;
    let mut absent = Vec::new();
    for row in page.lines().filter(|line| line.starts_with("| ") && line.contains('`')) {
        let tests = row.trim_end_matches([' ', '|']).rsplit('|').next().unwrap_or_default();
        let named: Vec<_> = tests.split('`').skip(1).step_by(2).collect();
        assert!(!named.is_empty(), "a row without a test: {row}");
        attacks += row.matches("CVE-").count();
        absent.extend(named.into_iter().filter(|name| !exists(name)));
    }
    assert!(absent.is_empty(), "docs/known-attacks.md names tests that are not there: {absent:?}");
    assert!(attacks >= 25, "{attacks} known holes");
    // What stands beside the tables.
    let beside = page.lines().filter(|line| !line.starts_with('|')).flat_map(|line| line.split('`').skip(1).step_by(2));
    for name in beside.filter(|name| name.starts_with("escape::") && !name.contains("AREA")) {
        assert!(exists(name), "{name}");
    }
}

fn exists(name: &str) -> bool {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests");
    if let Some((area, attempt)) = name.strip_prefix("escape::").and_then(|rest| rest.split_once('/')) {
        return escape::has(area, attempt);
    }
    if let Some((of_crate, path)) =
        name.split_once(' ').filter(|(of_crate, _)| matches!(*of_crate, "bundle" | "distribution"))
    {
        // The file of a module of tests is named by it, or by the module that it tests.
        let modules: Vec<_> = path.split("::").collect();
        let Some((function, modules)) = modules.split_last() else { return false };
        let named = [modules.join("/"), modules[..modules.len().saturating_sub(1)].join("/")];
        let holds = |file: &String| {
            let file = tests.join(format!("../{of_crate}/src/{file}.rs"));
            fs::read_to_string(file).is_ok_and(|source| source.contains(&format!("fn {function}(")))
        };
        return named.iter().any(holds);
    }
    let (file, function) = match name.strip_prefix("runtime ").and_then(|rest| rest.split_once("::tests::")) {
        Some((module, function)) => (tests.join(format!("../runtime/src/linux/{module}.rs")), function),
        None => match name.rsplit_once("::") {
            Some((module, function)) => (tests.join(format!("{}.rs", module.replace("::", "/"))), function),
            None => return false,
        },
    };
    fs::read_to_string(file).is_ok_and(|source| source.contains(&format!("fn {function}(")))
}
