//! Which program of a package is the server.

use std::collections::BTreeMap;

use super::error::BuildError;

/// The program named `wanted`, else the only one, else the one with the last part of the package's name; programs that
/// start the same thing count as one.
pub(super) fn choose<'a, T: PartialEq>(
    package: &str,
    programs: &'a BTreeMap<String, T>,
    wanted: Option<&str>,
) -> Result<(&'a str, &'a T), BuildError> {
    let fail = |why: String| {
        let choices = programs.keys().cloned().collect();
        Err(BuildError::EntryPoint { package: package.into(), why, choices })
    };
    let find = |name: &str| programs.get_key_value(name).map(|(name, start)| (name.as_str(), start));
    if let Some(wanted) = wanted {
        return find(wanted).map_or_else(|| fail(format!("it has no program {wanted:?}")), Ok);
    }
    let own = package.rsplit('/').next().unwrap_or(package);
    let Some(first) = programs.iter().next().map(|(name, start)| (name.as_str(), start)) else {
        return fail("it has no program that could be the server".into());
    };
    if programs.values().all(|start| start == first.1) {
        return Ok(find(own).unwrap_or(first));
    }
    find(own).map_or_else(|| fail("it has several programs".into()), Ok)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn table() {
        // package, programs as name=start, wanted, chosen
        let table = [
            ("@a/tool", "x=1", None, Ok("x")),
            ("@a/tool", "x=1 tool=2", None, Ok("tool")),
            ("tool", "x=1 tool=2 a=3", None, Ok("tool")),
            ("@a/tool", "x=1 y=1", None, Ok("x")),
            ("@a/tool", "a=1 tool=1", None, Ok("tool")),
            ("@a/tool", "x=1 y=2", Some("y"), Ok("y")),
            ("@a/tool", "x=1 y=2", None, Err("@a/tool: it has several programs")),
            ("@a/tool", "x=1", Some("z"), Err("@a/tool: it has no program \"z\"")),
            ("@a/tool", "", None, Err("@a/tool: it has no program that could be the server")),
        ];
        for (package, programs, wanted, want) in table {
            let pair = |pair: &str| pair.split_once('=').map(|(name, start)| (name.to_owned(), start.to_owned()));
            let programs: BTreeMap<_, _> = programs.split(' ').filter_map(pair).collect();
            let got = choose(package, &programs, wanted).map(|(name, _)| name).map_err(|error| error.to_string());
            assert_eq!(got, want.map_err(str::to_owned), "{package} {programs:?} {wanted:?}");
        }
    }

    #[test]
    fn choices_are_listed() {
        let programs = BTreeMap::from([("x".to_owned(), 1), ("y".to_owned(), 2)]);
        let error = choose("tool", &programs, None).unwrap_err();
        assert_eq!(error.hint().as_deref(), Some("choose one with --bin: x, y"));
    }
}
