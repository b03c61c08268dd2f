use super::*;

fn recognised_in(words: &[&str], env: &[&str], directory: Option<&str>) -> Result<Invocation, Left> {
    let env: Vec<(&str, bool)> = env.iter().map(|name| (*name, true)).collect();
    recognised_of(words, &env, directory, None)
}

fn recognised_of(
    words: &[&str],
    env: &[(&str, bool)],
    directory: Option<&str>,
    project: Option<&str>,
) -> Result<Invocation, Left> {
    let is_there = |path: &Path| path.starts_with("/home/me") || path.starts_with("/etc") || path == Path::new("/");
    let leads = |path: &Path| match path.to_str() {
        Some("/home/me/up" | "/home/me/p/../..") => Some(PathBuf::from("/home")),
        Some("/home/me/passwd") => Some(PathBuf::from("/etc/passwd")),
        _ => is_there(path).then(|| path.to_owned()),
    };
    let packages = Packages::of(Path::new("/nowhere"));
    let host = Host {
        home: Path::new("/home/me"),
        leads: &leads,
        packages: &packages,
        is_own: &|word| ["/opt/smcp-1", "/usr/bin/smcp", "smcp"].contains(&word),
        host_runtime: false,
    };
    recognise(Started { words, env, directory, project: project.map(Path::new) }, &host)
}

/// The words of `smcp run` up to the server's own, and how many stay.
fn run(line: &str, env: &[&str]) -> Result<(String, usize), String> {
    let words: Vec<&str> = line.split(' ').collect();
    match recognised_in(&words, env, None) {
        Ok(found) => Ok(([found.flags, vec![found.reference]].concat().join(" "), words.len() - found.replaced)),
        Err(Left::Caged(reference)) => Err(format!("caged {reference}")),
        Err(Left::Alone(why)) => Err(why),
    }
}

#[test]
fn what_launchers_start() {
    for (line, want, stay) in [
        ("npx -y @modelcontextprotocol/server-filesystem /home/me/p", "npm:@modelcontextprotocol/server-filesystem", 1),
        ("npx @acme/x@1.2.3", "npm:@acme/x@1.2.3", 0),
        ("npx --yes --package=@acme/x tool -v", "--bin tool npm:@acme/x", 1),
        ("npx -y -p @acme/x x", "npm:@acme/x", 0),
        ("npx -y x@latest -y", "npm:x@latest", 1),
        ("/home/me/.nvm/bin/npx -y x", "npm:x", 0),
        ("cmd /c npx -y x /home/me/p", "--allow-write /home/me/p npm:x", 1),
        ("cmd.exe /C npx.cmd -y x", "npm:x", 0),
        ("/usr/bin/env npx -y x", "npm:x", 0),
        ("bunx x", "npm:x", 0),
        ("bun x x", "npm:x", 0),
        ("uvx mcp-server-time --local-timezone=Europe/Berlin", "pypi:mcp-server-time", 1),
        ("uvx mcp-server-time@1.2", "pypi:mcp-server-time==1.2", 0),
        ("uvx mcp-server-time@latest", "pypi:mcp-server-time", 0),
        ("uvx --from mcp-server-time==1.2 other", "--bin other pypi:mcp-server-time==1.2", 0),
        ("uv tool run --python 3.12 mcp-server-time", "pypi:mcp-server-time", 0),
        ("pipx run mcp-server-time", "pypi:mcp-server-time", 0),
        ("pipx run --spec mcp_server_time==1 mcp-server-time", "pypi:mcp_server_time==1", 0),
        ("python3 -u -m mcp_server_git --repository /home/me/r", "pypi:mcp-server-git", 2),
        (
            "node /x/node_modules/@modelcontextprotocol/server-memory/dist/index.js a",
            "npm:@modelcontextprotocol/server-memory",
            1,
        ),
        ("docker run -i --rm mcp/time", "docker.io/mcp/time", 0),
        ("docker run -i --rm alpine:3 sh", "docker.io/library/alpine:3", 1),
        (
            "docker run -it --rm -v /home/me/p:/p:ro --mount type=bind,src=/home/me/q,dst=/q ghcr.io/a/b:1 /p",
            "--mount /home/me/p:/p:ro --mount /home/me/q:/q:rw ghcr.io/a/b:1",
            1,
        ),
        (
            "docker container run --network=none -m 512m -e A=b localhost:5000/a/b",
            "--memory 512M --env A=b localhost:5000/a/b",
            0,
        ),
    ] {
        assert_eq!(run(line, &[]), Ok((want.to_owned(), stay)), "{line}");
    }
}

#[test]
fn what_is_left_alone() {
    for (line, why) in [
        ("npx -c x", "-c"),
        ("npx -y -p a -p b c", "several packages"),
        ("npx -y", "names no package"),
        ("npx -y github:a/b", "no package of npm's registry"),
        ("npx -y https://x.test/a.tgz", "an address is no package of npm's registry"),
        ("npx -y git+https://me:hunter2@x.test/a", "an address is no package"),
        ("npx -y ./dir", "no package of npm's registry"),
        ("npx tsx server.ts", "a script of this machine"),
        ("npx -y mcp-remote https://x.test/sse", "a remote server"),
        ("npx --registry https://x.test x", "--registry has no counterpart"),
        ("bunx --bun x", "--bun"),
        ("uvx --with mcp x", "--with"),
        ("uvx --from git+https://x.test/a x", "no package of PyPI"),
        ("uvx x[extra]", "no package of PyPI"),
        ("uv run server.py", "a project of this machine"),
        ("uv --directory /d run x", "a project of this machine"),
        ("docker run -v data:/data x", "keeps the volume data itself"),
        ("docker run -v /var/run/docker.sock:/s x", "socket"),
        ("docker run --privileged x", "--privileged"),
        ("docker run --network host x", "network host"),
        ("docker run -e API_TOKEN=hunter2 x", "API_TOKEN"),
        ("docker run -i", "no image"),
        ("docker mcp gateway run", "docker run"),
        ("sh -c npx", "a shell"),
        ("cmd /k npx", "a command line of Windows"),
        ("env A=b npx x", "by way of env"),
        ("node dist/index.js", "a script of this machine"),
        ("node /x/node_modules/acme/i.js", "which registry acme"),
        ("python server.py", "a script of this machine"),
        ("python -m acme", "the module acme"),
        ("/opt/acme/server --stdio", "none of npx"),
        ("smcp pull x", "no `smcp run`"),
        ("/usr/bin/smcp run --env A npm:x y", "caged npm:x"),
        ("/opt/smcp-1 run npm:x", "caged npm:x"),
        ("smcp run --no-such-flag npm:x", "refuses"),
        ("./smcp run npm:x", "is not this smcp"),
        ("/home/me/p/smcp run npm:x", "/home/me/p/smcp is not this smcp"),
    ] {
        let left = run(line, &[]).unwrap_err();
        assert!(left.contains(why), "{line}: {left}");
        assert!(!left.contains("hunter2"), "{left}");
    }
    assert!(
        matches!(recognised_in(&["npx -y x"], &[], None), Err(Left::Alone(why)) if why.contains("whole command line"))
    );
    assert!(matches!(recognised_in(&["cmd", "/c", "npx -y x"], &[], None), Err(Left::Alone(_))));
}

#[test]
fn variables_go_by_their_names() {
    let env = ["LOG", "API_KEY", "npm_config_registry", "PATH"];
    assert_eq!(run("npx -y x", &env), Ok(("--env LOG --secret API_KEY npm:x".to_owned(), 0)));
    assert_eq!(run("docker run -e LOG -e OTHER a/b", &env), Ok(("--env LOG docker.io/a/b".to_owned(), 0)));
    let known = "npx -y @notionhq/notion-mcp-server";
    let want = "--secret OPENAPI_MCP_HEADERS npm:@notionhq/notion-mcp-server";
    assert_eq!(run(known, &["OPENAPI_MCP_HEADERS"]), Ok((want.to_owned(), 0)), "the table says so");
}

#[test]
fn what_is_no_name_of_a_variable_is_put_behind_no_flag() {
    for name in ["API_TOKEN=command:touch /tmp/x", "LOG=1", "-v", "", "A B", "A\n", "--secret", "A*", "A:B"] {
        for line in ["npx -y x", "docker run -e LOG a/b"] {
            assert!(run(line, &[name]).unwrap_err().contains("none by its name"), "{name}");
        }
    }
    assert_eq!(run("npx -y x", &["ProgramFiles(x86)"]).unwrap().0, "--env ProgramFiles(x86) npm:x");
}

#[test]
fn what_smcp_itself_goes_by_is_said_and_not_taken_from_a_project() {
    for name in [
        "PATH",
        "MCP_CACHE_DIR",
        "MCP_POLICY_MIN_TIER",
        "npm_config_registry",
        "https_proxy",
        "XDG_STATE_HOME",
        "UV_INDEX_URL",
    ] {
        let words = ["npx", "-y", "x"];
        let found = recognised_of(&words, &[("LOG", true), (name, true)], None, None).unwrap();
        assert_eq!(found.notes, [format!("smcp itself goes by {name} too, outside of the cage")]);
        let left = recognised_of(&words, &[("LOG", true), (name, true)], None, PROJECT).unwrap_err();
        assert!(matches!(left, Left::Alone(why) if why.contains(name) && why.contains("project")), "{name}");
    }
    let own = [("MCP_TRANSPORT", true), ("API_KEY", true), ("PATHS", true)];
    assert_eq!(recognised_of(&["npx", "-y", "x"], &own, None, PROJECT).unwrap().notes, [""; 0]);
}

/// A project whose file others may have written.
const PROJECT: Option<&str> = Some("/home/me/p");

#[test]
fn a_project_names_what_is_in_it() {
    let words = ["npx", "-y", "x", "/home/me/p/data", "/home/me/.ssh", "/etc/passwd", "https://api.test"];
    let found = recognised_of(&words, &[], Some("/home/me/p/data"), PROJECT).unwrap();
    let want = ["--cwd", "/home/me/p/data", "--allow-write", "/home/me/p/data", "--allow-net", "api.test:443"];
    assert_eq!(found.flags, want);
    let noted = |path: &str| found.notes.iter().any(|note| note.starts_with(path) && note.ends_with("not granted"));
    assert!(noted("/home/me/.ssh") && noted("/etc/passwd"), "{:?}", found.notes);
    let left = recognised_of(&words, &[], Some("/home/me/q"), PROJECT).unwrap_err();
    assert!(matches!(left, Left::Alone(why) if why.contains("/home/me/q") && why.contains("does not hold it")));
}

#[test]
fn what_a_project_has_smcp_do_outside_is_not_caged() {
    let more = ["smcp", "run", "--secret", "K=command:touch /x", "npm:x"];
    let left = recognised_of(&more, &[], None, PROJECT).unwrap_err();
    assert!(matches!(left, Left::Alone(why) if why.contains("outside of the cage")));
    let left = recognised_of(&["smcp", "run", "npm:x"], &[("MCP_POLICY_MIN_TIER", true)], None, PROJECT).unwrap_err();
    assert!(matches!(left, Left::Alone(why) if why.contains("MCP_POLICY_MIN_TIER")));
    for line in [&more[..], &["smcp", "run", "--secret", "K=env:J", "npm:x"]] {
        let left = recognised_of(line, &[], None, None).unwrap_err();
        assert_eq!(left, Left::Caged("npm:x".into()), "the user's own wish");
    }
}

#[test]
fn what_arguments_name_is_granted_unless_it_is_too_wide() {
    for (line, want) in [
        ("npx x --dir=/home/me/p", "--allow-write /home/me/p npm:x"),
        ("npx x /etc/x.conf", "--allow-read /etc/x.conf npm:x"),
        ("npx x /home/me", "npm:x"),
        ("npx x /home/me/up", "npm:x"),
        ("npx x /home/me/p/../..", "npm:x"),
        ("npx x /home/me/passwd", "--allow-read /home/me/passwd npm:x"),
        ("npx x /", "npm:x"),
        ("npx x /no/such", "npm:x"),
        ("npx x https://api.test/v1", "--allow-net api.test:443 npm:x"),
        ("npx x --url=http://api.test:8080", "--allow-net api.test:8080 npm:x"),
        ("npx x http://localhost:3000/", "--allow-host-port 3000 npm:x"),
        ("npx x https://[::1]/", "npm:x"),
    ] {
        assert_eq!(run(line, &[]).map(|(words, _)| words), Ok(want.to_owned()), "{line}");
    }
}

#[test]
fn what_it_reaches_and_is_granted_is_said() {
    let words = ["npx", "-y", "@modelcontextprotocol/server-filesystem", "/home/me/p"];
    let found = recognised_in(&words, &["LOG"], Some("/work")).unwrap();
    assert_eq!(found.flags, ["--cwd", "/work", "--env", "LOG"]);
    assert!(found.today[0].contains("every file of yours"));
    let granted =
        ["/work read-write: it starts there", "the variables LOG", "/home/me/p read-write", "nothing of the network"];
    assert_eq!(found.granted, granted);
    let docker = recognised_in(&["docker", "run", "-v", "/home/me/p:/p:ro", "a/b"], &[], None).unwrap();
    assert_eq!(docker.today[1], "/home/me/p read-only, at /p");
    for wrong in ["sub", "/home/me", "/home/me/up", "/"] {
        assert!(matches!(recognised_in(&["npx", "x"], &[], Some(wrong)), Err(Left::Alone(_))), "{wrong}");
    }
}
