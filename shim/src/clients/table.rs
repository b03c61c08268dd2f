//! The clients as data: where each has its configuration, in which language, and under which names servers stand there.

use std::env;
use std::path::{Path, PathBuf};

use super::dialect::Dialect;

/// A client.
#[derive(Debug)]
pub struct Client {
    /// What it is called on the command line.
    pub id: &'static str,
    /// Other words for it.
    pub aliases: &'static [&'static str],
    /// What people call it.
    pub name: &'static str,
    /// Its files, the user's own first.
    pub files: &'static [Place],
    /// Their language.
    pub dialect: Dialect,
    /// How servers stand there.
    pub shape: Shape,
}

/// A file, or several by a pattern.
#[derive(Debug)]
pub struct Place {
    base: Base,
    /// Beneath it: `*` stands for any characters of one name.
    path: &'static str,
}

/// What a path is beneath.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Base {
    /// The home directory.
    Home,
    /// The directory of configurations: `XDG_CONFIG_HOME`, which is `~/.config` without it; elsewhere than on Linux that.
    Config,
    /// The same on Linux; `~/Library/Application Support` on macOS, `%APPDATA%` on Windows.
    Application,
    /// The working directory: what is there is the project's, and others may have it too.
    Project,
}

/// How servers stand in a file.
#[derive(Debug)]
pub struct Shape {
    /// Where the map (or list) of them is, the one that `client add` adds to first; [`ANY`] stands for every name.
    pub at: &'static [&'static [&'static str]],
    /// The name of the program's value.
    pub command: &'static str,
    /// That of the arguments; none where they stand in one list with the program.
    pub args: Option<&'static str>,
    /// That of the variables.
    pub env: &'static str,
    /// What an entry that is added has beside.
    pub more: &'static [(&'static str, &'static str)],
    /// Whether they are a list, each with its `name`.
    pub is_list: bool,
}

/// Every name.
pub const ANY: &str = "*";

/// `NAME: {command, args, env}`, as most have it.
const USUAL: Shape =
    Shape { at: &[&["mcpServers"]], command: "command", args: Some("args"), env: "env", more: &[], is_list: false };

const fn home(path: &'static str) -> Place {
    Place { base: Base::Home, path }
}

const fn config(path: &'static str) -> Place {
    Place { base: Base::Config, path }
}

const fn application(path: &'static str) -> Place {
    Place { base: Base::Application, path }
}

const fn project(path: &'static str) -> Place {
    Place { base: Base::Project, path }
}

/// All of them.
pub static CLIENTS: [Client; 17] = [
    Client {
        id: "claude-desktop",
        aliases: &["claude"],
        name: "Claude Desktop",
        files: &[application("Claude/claude_desktop_config.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "claude-code",
        aliases: &[],
        name: "Claude Code",
        files: &[home(".claude.json"), project(".mcp.json")],
        dialect: Dialect::Json,
        shape: Shape { at: &[&["mcpServers"], &["projects", ANY, "mcpServers"]], more: &[("type", "stdio")], ..USUAL },
    },
    Client {
        id: "cursor",
        aliases: &[],
        name: "Cursor",
        files: &[home(".cursor/mcp.json"), project(".cursor/mcp.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "vscode",
        aliases: &["vs-code", "code"],
        name: "VS Code",
        files: &[application("Code/User/mcp.json"), project(".vscode/mcp.json")],
        dialect: Dialect::Json,
        shape: Shape { at: &[&["servers"]], more: &[("type", "stdio")], ..USUAL },
    },
    Client {
        id: "windsurf",
        aliases: &[],
        name: "Windsurf",
        files: &[home(".codeium/windsurf/mcp_config.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "zed",
        aliases: &[],
        name: "Zed",
        files: &[config("zed/settings.json")],
        dialect: Dialect::Json,
        shape: Shape { at: &[&["context_servers"]], ..USUAL },
    },
    Client {
        id: "continue",
        aliases: &[],
        name: "Continue",
        files: &[
            home(".continue/config.yaml"),
            home(".continue/mcpServers/*.yaml"),
            home(".continue/mcpServers/*.yml"),
            project(".continue/mcpServers/*.yaml"),
            project(".continue/mcpServers/*.yml"),
        ],
        dialect: Dialect::Yaml,
        shape: Shape { is_list: true, ..USUAL },
    },
    Client {
        id: "codex",
        aliases: &[],
        name: "Codex",
        files: &[home(".codex/config.toml")],
        dialect: Dialect::Toml,
        shape: Shape { at: &[&["mcp_servers"]], ..USUAL },
    },
    Client {
        id: "gemini",
        aliases: &["gemini-cli"],
        name: "Gemini CLI",
        files: &[home(".gemini/settings.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "lm-studio",
        aliases: &["lmstudio"],
        name: "LM Studio",
        files: &[home(".lmstudio/mcp.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "cline",
        aliases: &["roo"],
        name: "Cline, Roo",
        files: &[application("Code/User/globalStorage/*/settings/*mcp_settings.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "goose",
        aliases: &[],
        name: "Goose",
        files: &[config("goose/config.yaml")],
        dialect: Dialect::Yaml,
        shape: Shape {
            at: &[&["extensions"]],
            command: "cmd",
            args: Some("args"),
            env: "envs",
            more: &[("type", "stdio"), ("enabled", "true")],
            is_list: false,
        },
    },
    Client {
        id: "opencode",
        aliases: &[],
        name: "opencode",
        files: &[config("opencode/opencode.json")],
        dialect: Dialect::Json,
        shape: Shape {
            at: &[&["mcp"]],
            command: "command",
            args: None,
            env: "environment",
            more: &[("type", "local")],
            is_list: false,
        },
    },
    Client {
        id: "crush",
        aliases: &[],
        name: "Crush",
        files: &[config("crush/crush.json")],
        dialect: Dialect::Json,
        shape: Shape { at: &[&["mcp"]], more: &[("type", "stdio")], ..USUAL },
    },
    Client {
        id: "copilot",
        aliases: &["copilot-cli"],
        name: "Copilot CLI",
        files: &[home(".copilot/mcp-config.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "kiro",
        aliases: &[],
        name: "Kiro",
        files: &[home(".kiro/settings/mcp.json")],
        dialect: Dialect::Json,
        shape: USUAL,
    },
    Client {
        id: "amp",
        aliases: &[],
        name: "Amp",
        files: &[config("amp/settings.json")],
        dialect: Dialect::Json,
        shape: Shape { at: &[&["amp.mcpServers"]], ..USUAL },
    },
];

/// What a machine's paths are made of.
#[derive(Clone, Debug)]
pub struct Machine {
    platform: Platform,
    home: PathBuf,
    /// `XDG_CONFIG_HOME`.
    config: Option<PathBuf>,
    /// `%APPDATA%`.
    application_data: Option<PathBuf>,
    project: Option<PathBuf>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[cfg_attr(not(test), allow(dead_code, reason = "a build knows one of them"))]
enum Platform {
    Linux,
    MacOs,
    Windows,
}

impl Machine {
    /// This one; none without a home directory.
    pub fn this() -> Option<Machine> {
        let platform = match env::consts::OS {
            "macos" => Platform::MacOs,
            "windows" => Platform::Windows,
            _ => Platform::Linux,
        };
        let absolute = |name: &str| env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
        let home = env::home_dir().filter(|home| home.is_absolute())?;
        let project = env::current_dir().ok();
        let (config, application_data) = (absolute("XDG_CONFIG_HOME"), absolute("APPDATA"));
        Some(Machine { platform, home, config, application_data, project })
    }

    /// The home directory.
    pub fn home(&self) -> &Path {
        &self.home
    }

    fn base(&self, base: Base) -> Option<PathBuf> {
        let dot_config = || match self.platform {
            Platform::Linux => self.config.clone().unwrap_or_else(|| self.home.join(".config")),
            Platform::MacOs | Platform::Windows => self.home.join(".config"),
        };
        Some(match (base, self.platform) {
            (Base::Home, _) => self.home.clone(),
            (Base::Config, _) | (Base::Application, Platform::Linux) => dot_config(),
            (Base::Application, Platform::MacOs) => self.home.join("Library/Application Support"),
            (Base::Application, Platform::Windows) => {
                self.application_data.clone().unwrap_or_else(|| self.home.join("AppData/Roaming"))
            }
            (Base::Project, _) => return self.project.clone(),
        })
    }
}

/// Where a file is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file; it need not be there.
    pub path: PathBuf,
    /// The project whose file it is; none of the user's own.
    pub project: Option<PathBuf>,
}

impl Client {
    /// The client of a word.
    pub fn named(word: &str) -> Option<&'static Client> {
        let word = word.to_ascii_lowercase();
        CLIENTS.iter().find(|client| client.id == word || client.aliases.contains(&word.as_str()))
    }

    /// Its files on a machine: those that patterns find, and the others whether they are there or not.
    pub fn locations(&self, machine: &Machine) -> Vec<Location> {
        let mut found = Vec::new();
        for place in self.files {
            let Some(base) = machine.base(place.base) else { continue };
            let project = (place.base == Base::Project).then(|| base.clone());
            let location = |path| Location { path, project: project.clone() };
            found.extend(paths(base, place.path).into_iter().map(location));
        }
        found
    }
}

/// The path beneath a directory; of a pattern those that are there, by their names.
fn paths(base: PathBuf, below: &str) -> Vec<PathBuf> {
    let mut paths = vec![base];
    for part in below.split('/') {
        paths = paths.into_iter().flat_map(|path| step(&path, part)).collect();
    }
    paths
}

fn step(directory: &Path, part: &str) -> Vec<PathBuf> {
    let Some((start, end)) = part.split_once('*') else { return vec![directory.join(part)] };
    let Ok(entries) = std::fs::read_dir(directory) else { return Vec::new() };
    let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
    let fits = |name: &String| name.len() >= start.len() + end.len() && name.starts_with(start) && name.ends_with(end);
    let mut names: Vec<String> = names.filter(fits).collect();
    names.sort();
    names.into_iter().map(|name| directory.join(name)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn on(platform: Platform, id: &str) -> Vec<String> {
        let machine = Machine {
            platform,
            home: "/home/me".into(),
            config: (platform == Platform::Linux).then(|| "/home/me/.xdg".into()),
            application_data: (platform == Platform::Windows).then(|| "/home/me/AppData/Roaming".into()),
            project: Some("/work".into()),
        };
        let client = Client::named(id).unwrap();
        client.locations(&machine).into_iter().map(|location| location.path.display().to_string()).collect()
    }

    #[test]
    fn paths_of_all_platforms() {
        for (id, linux, macos, windows) in [
            (
                "claude-desktop",
                "/home/me/.xdg/Claude/claude_desktop_config.json",
                "/home/me/Library/Application Support/Claude/claude_desktop_config.json",
                "/home/me/AppData/Roaming/Claude/claude_desktop_config.json",
            ),
            (
                "vscode",
                "/home/me/.xdg/Code/User/mcp.json",
                "/home/me/Library/Application Support/Code/User/mcp.json",
                "/home/me/AppData/Roaming/Code/User/mcp.json",
            ),
            (
                "zed",
                "/home/me/.xdg/zed/settings.json",
                "/home/me/.config/zed/settings.json",
                "/home/me/.config/zed/settings.json",
            ),
            ("codex", "/home/me/.codex/config.toml", "/home/me/.codex/config.toml", "/home/me/.codex/config.toml"),
        ] {
            let first = |platform| on(platform, id).remove(0);
            assert_eq!(
                [Platform::Linux, Platform::MacOs, Platform::Windows].map(first),
                [linux, macos, windows],
                "{id}"
            );
        }
        assert_eq!(on(Platform::Linux, "cursor"), ["/home/me/.cursor/mcp.json", "/work/.cursor/mcp.json"]);
    }

    #[test]
    fn every_client_has_one_name() {
        let mut words: Vec<&str> = CLIENTS.iter().flat_map(|client| [&[client.id], client.aliases].concat()).collect();
        let count = words.len();
        words.sort_unstable();
        words.dedup();
        assert_eq!(words.len(), count);
        assert!(CLIENTS.iter().all(|client| !client.files.is_empty() && !client.shape.at.is_empty()));
    }
}
