//! What an installed python distribution says about itself, in its `NAME-VERSION.dist-info`.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use distribution::normal_name;

use super::error::BuildError;
use super::tree;

/// Reads the `dist-info` of one distribution.
pub(super) fn describe(site: &Path, name: &str) -> Result<Described, BuildError> {
    let is_metadata = |file: &Path| file.ends_with("METADATA") && in_dist_info(file);
    for file in tree::files(site)?.into_iter().filter(|file| is_metadata(file)) {
        let path = site.join(&file);
        let bytes = fs::read(&path).map_err(BuildError::io(format!("reading {}", file.display())))?;
        let described = parse_metadata(&String::from_utf8_lossy(&bytes));
        if normal_name(&described.name) == normal_name(name) {
            let entry_points = fs::read_to_string(path.with_file_name("entry_points.txt")).unwrap_or_default();
            return Ok(Described { scripts: console_scripts(&entry_points), ..described });
        }
    }
    Err(BuildError::answer("pip", format!("{name} was not installed")))
}

/// What a distribution says about itself in its `dist-info`.
pub(super) struct Described {
    pub(super) name: String,
    pub(super) version: String,
    pub(super) summary: Option<String>,
    pub(super) license: Option<String>,
    pub(super) source: Option<String>,
    pub(super) server_name: Option<String>,
    /// Console scripts: name and `module:attribute`.
    pub(super) scripts: BTreeMap<String, String>,
}

/// Takes out of each `RECORD` what is not packed: pip's scripts, whose bytes hold the path of this machine's python,
/// and the file that says where on this machine a wheel lay.
pub(super) fn clean_records(site: &Path) -> Result<(), BuildError> {
    let files = tree::files(site)?;
    let is_record = |file: &Path| file.ends_with("RECORD") && in_dist_info(file);
    for record in files.iter().filter(|file| is_record(file)) {
        let path = site.join(record);
        let failed = || BuildError::io(format!("rewriting {}", path.display()));
        let text = fs::read_to_string(&path).map_err(failed())?;
        let kept =
            |line: &&str| !line.starts_with("../") && !line.starts_with('/') && !line.contains("/direct_url.json,");
        let lines: String = text.lines().filter(kept).map(|line| format!("{line}\n")).collect();
        fs::write(&path, lines).map_err(failed())?;
    }
    for file in files.iter().filter(|file| file.ends_with("direct_url.json") && in_dist_info(file)) {
        fs::remove_file(site.join(file)).map_err(BuildError::io("removing direct_url.json"))?;
    }
    Ok(())
}

fn in_dist_info(file: &Path) -> bool {
    let parent = file.parent().and_then(Path::to_str);
    parent.is_some_and(|parent| parent.ends_with(".dist-info") && !parent.contains('/'))
}

/// Reads the fields of the core metadata that are of use here; the body may hold `mcp-name:`, by which the official MCP
/// registry knows that a package belongs to a server.
fn parse_metadata(text: &str) -> Described {
    let (head, body) = text.split_once("\n\n").unwrap_or((text, ""));
    let field = |key: &str| {
        let value = head.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(": "))?.trim();
        (!value.is_empty() && value != "UNKNOWN").then(|| value.to_owned())
    };
    let links = head.lines().filter_map(|line| line.strip_prefix("Project-URL: ")?.split_once(','));
    let source = links.map(|(label, url)| (label.trim().to_lowercase(), url.trim())).find(|(label, url)| {
        ["source", "repository", "source code", "github", "code"].contains(&label.as_str())
            && url.starts_with("https://")
    });
    Described {
        name: field("Name").unwrap_or_default(),
        version: field("Version").unwrap_or_default(),
        summary: field("Summary"),
        license: field("License-Expression").or_else(|| field("License")),
        source: source.map(|(_, url)| url.to_owned()),
        server_name: body.split("mcp-name:").nth(1).and_then(server_name),
        scripts: BTreeMap::new(),
    }
}

/// `REVERSE.DNS/NAME` at the beginning of the text.
fn server_name(text: &str) -> Option<String> {
    let fits = |c: char| c.is_ascii_alphanumeric() || "._-/".contains(c);
    let name: String = text.trim_start_matches(' ').chars().take_while(|c| fits(*c)).collect();
    name.contains('/').then_some(name)
}

/// The section `console_scripts`; entries that are no plain names are left out, for they become code.
fn console_scripts(entry_points: &str) -> BTreeMap<String, String> {
    let mut scripts = BTreeMap::new();
    let mut section = "";
    for line in entry_points.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with(['#', ';'])) {
        if let Some(name) = line.strip_prefix('[').and_then(|line| line.strip_suffix(']')) {
            section = name.trim();
        } else if let Some((name, start)) = line.split_once('=')
            && section == "console_scripts"
        {
            let start = start.split('[').next().unwrap_or_default().replace(' ', "");
            if is_file_name(name.trim()) && is_object(&start) {
                scripts.insert(name.trim().to_owned(), start);
            }
        }
    }
    scripts
}

fn is_file_name(name: &str) -> bool {
    !name.starts_with('.') && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b)) && !name.is_empty()
}

/// `module.path:attribute.path`
fn is_object(start: &str) -> bool {
    let identifier = |part: &str| {
        !part.is_empty()
            && part.chars().all(|c| c.is_alphanumeric() || c == '_')
            && !part.starts_with(|c: char| c.is_numeric())
    };
    start
        .split_once(':')
        .is_some_and(|(module, attribute)| [module, attribute].iter().all(|path| path.split('.').all(identifier)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scripts() {
        let text = "[gui_scripts]\nx = a:b\n\n[console_scripts]\n# comment\none = pkg.mod:main\n two=pkg:Cls.run [extra]\n\
            bad = pkg\nevil = os:system('x')\n../up = a:b\n.hidden = a:b\n[other]\nthree = a:b\n";
        let want = [("one", "pkg.mod:main"), ("two", "pkg:Cls.run")];
        let want: BTreeMap<_, _> = want.iter().map(|(name, start)| ((*name).to_owned(), (*start).to_owned())).collect();
        assert_eq!(console_scripts(text), want);
    }

    #[test]
    fn metadata() {
        let text = "Metadata-Version: 2.4\nName: MCP_Server.Time\nVersion: 1.2\nSummary: tells: the time\n\
            License: UNKNOWN\nProject-URL: Homepage, https://x\nProject-URL: Source, https://y/z\n\n\
            # Time\n<!-- mcp-name: io.github.acme/time -->\nVersion: 9\n";
        let described = parse_metadata(text);
        assert_eq!(normal_name(&described.name), "mcp-server-time");
        assert_eq!(described.version, "1.2");
        assert_eq!(described.summary.as_deref(), Some("tells: the time"));
        assert_eq!(described.license, None);
        assert_eq!(described.source.as_deref(), Some("https://y/z"));
        assert_eq!(described.server_name.as_deref(), Some("io.github.acme/time"));
    }

    #[test]
    fn records() {
        let site = tempfile::tempdir().unwrap();
        let info = site.path().join("x-1.dist-info");
        fs::create_dir(&info).unwrap();
        fs::write(
            info.join("RECORD"),
            "../../bin/x,sha256=a,1\nx.py,sha256=b,2\nx-1.dist-info/direct_url.json,c,3\n/abs,,\n",
        )
        .unwrap();
        fs::write(info.join("direct_url.json"), "{}").unwrap();
        clean_records(site.path()).unwrap();
        assert_eq!(fs::read_to_string(info.join("RECORD")).unwrap(), "x.py,sha256=b,2\n");
        assert!(!info.join("direct_url.json").exists());
    }
}
