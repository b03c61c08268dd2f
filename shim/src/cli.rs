//! What a person types: the one table of commands and flags.

// The comments are the help text, where brackets mean what may be left out.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::LazyLock;

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;
use distribution::Runtime;

/// Run MCP servers without blindly trusting them.
#[derive(Debug, Parser)]
#[command(name = "smcp", version = VERSION.as_str(), max_term_width = 100)]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
    /// What goes for each of them.
    #[command(flatten)]
    pub globals: Globals,
}

/// The version, the commit where `packaging/` built it, and what this build can do beyond the least.
static VERSION: LazyLock<String> = LazyLock::new(|| {
    let commit = option_env!("SMCP_COMMIT").map(|commit| format!("commit {commit}, ")).unwrap_or_default();
    let features = if cfg!(feature = "keyless") { "keyless" } else { "none" };
    format!("{} ({commit}features: {features})", env!("CARGO_PKG_VERSION"))
});

/// Flags of every command.
#[derive(Debug, Args)]
pub struct Globals {
    /// Read this configuration file in place of ~/.smcp/config.yaml
    #[arg(long, global = true, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Say more on stderr
    #[arg(short, long, global = true)]
    pub verbose: bool,
    /// Say nothing but errors on stderr
    #[arg(short, long, global = true, conflicts_with = "verbose")]
    pub quiet: bool,
}

/// [`Cli`] with one command: to make the table of all others costs a start two tenths of a millisecond.
#[derive(Debug, Parser)]
#[command(name = "smcp", version = VERSION.as_str(), max_term_width = 100)]
struct RunAlone {
    #[command(subcommand)]
    command: TheRun,
    #[command(flatten)]
    globals: Globals,
}

#[derive(Debug, Subcommand)]
enum TheRun {
    /// Run a server in its cage; everything after REF goes to the server
    Run(Box<Run>),
}

impl Cli {
    /// Reads a command line.
    ///
    /// # Errors
    /// What clap says of it; `--help` and `--version` among them.
    pub fn read(arguments: &[OsString]) -> Result<Cli, clap::Error> {
        if arguments.get(1).is_none_or(|command| command != "run") {
            return Cli::try_parse_from(arguments);
        }
        let RunAlone { command: TheRun::Run(run), globals } = RunAlone::try_parse_from(arguments)?;
        Ok(Cli { command: Command::Run(run), globals })
    }
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run a server in its cage; everything after REF goes to the server
    Run(Box<Run>),
    /// Fetch packages and unpack them, for offline use and CI
    Pull {
        /// Packages
        #[arg(required = true, value_name = "REF")]
        references: Vec<String>,
        /// Refuse what is not in the project's smcp.lock as it is there
        #[arg(long)]
        locked: bool,
        /// Registry of names without one
        #[arg(long, value_name = "URL")]
        registry: Option<String>,
        /// How it is made, of a source.
        #[command(flatten)]
        making: Making,
    },
    /// Publish a package from the store
    Push {
        /// The package, by the name it has in the store
        #[arg(value_name = "REF")]
        reference: String,
        /// Publish it under this name, or to oci-layout:DIR[:TAG]
        #[arg(value_name = "TARGET")]
        target: Option<String>,
    },
    /// Keep credentials for a registry; those of docker and podman are read where they lie
    Login(Login),
    /// Forget the credentials that `login` kept
    Logout {
        /// HOST[:PORT]; without one the configured registry
        #[arg(value_name = "REGISTRY")]
        registry: Option<String>,
    },
    /// Make a package from npm:NAME, pypi:NAME, mcp:NAME, ./dir or ./x.mcpb
    Build(Build),
    /// Show what a package is and what a run of it would be granted
    Info {
        /// The package
        #[arg(value_name = "REF")]
        reference: String,
        /// How it is made, of a source.
        #[command(flatten)]
        making: Making,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Keys that sign packages
    Key {
        /// What to do with them.
        #[command(subcommand)]
        command: Key,
    },
    /// Sign a package, where its registry or layout has it
    Sign(Sign),
    /// Say something about a package with a key: certify it, or revoke it
    Attest(Attest),
    /// Show what keys say about a package: exit code 122 where they say nothing, 121 where it is revoked
    Verify(Verify),
    /// Start a package without network, secrets and anything that lasts, list what it offers, and compare that with what was
    /// accepted: exit code 1 where it differs
    Scan(Scan),
    /// Start a server as `run` does, greet it in both eras of the protocol, list what it offers, call a tool, and compare all that with
    /// what is expected: exit code 1 where it differs
    Test(Box<Test>),
    /// Accept what a version asks for, where that is more than what was accepted before, and the tools that its last run listed
    Accept {
        /// The package
        #[arg(value_name = "REF")]
        reference: String,
        /// How it is made, of a source.
        #[command(flatten)]
        making: Making,
        /// In the project's smcp.lock in the working directory, for --locked
        #[arg(long)]
        lock: bool,
    },
    /// What may run and what it may be granted
    Policy {
        /// What to show.
        #[command(subcommand)]
        command: Policy,
    },
    /// The store of fetched and built packages
    Cache {
        /// What to do with it.
        #[command(subcommand)]
        command: Cache,
    },
    /// Write a bundle that any OCI runtime runs: a server with what a run of it would be granted
    Bundle(Box<BundleOf>),
    /// Run a server, and propose from what it reached the permissions of its manifest
    Learn(Box<Learn>),
    /// Show what a run was denied, and the flag that would grant it
    Why {
        /// The run, as the audit log names it; the newest without it
        #[arg(value_name = "RUN")]
        run: Option<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// The audit log: what ran, who granted it what, and how it ended
    Audit {
        /// What to do with it.
        #[command(subcommand)]
        command: Audit,
    },
    /// An OCI runtime, by the command line of runc, for containerd, podman and docker; also by the name smcp-oci
    Oci {
        /// Those of runc
        #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// List the runs under way
    Ps {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show what a server said on stderr, of a run under way or one that ended
    Logs {
        /// The run, as `smcp ps` and the audit log name it; the newest that said something without it
        #[arg(value_name = "RUN")]
        run: Option<String>,
        /// Go on until it ends
        #[arg(short, long)]
        follow: bool,
    },
    /// Let smcp start the servers of AI clients that npx, uvx, pipx, bunx or docker start: shows first what each reaches and would
    /// be granted
    Adopt(Adopt),
    /// The servers that AI clients start
    Client {
        /// What to do with them.
        #[command(subcommand)]
        command: Client,
    },
    /// Put the files of AI clients back as they were before smcp's last change
    Undo(Undo),
    /// Show what this machine enforces, layer by layer, as tried just now
    Doctor {
        /// Show what would bring more: settings, profiles
        #[arg(long)]
        fix: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Print what completes smcp's commands and flags in a shell
    Completions {
        /// The shell
        #[arg(value_enum, value_name = "SHELL")]
        shell: Shell,
    },
    /// Print the manual page of smcp, or write those of all commands
    Man {
        /// Write smcp.1, smcp-run.1 and so on here
        #[arg(long, value_name = "DIR")]
        dir: Option<PathBuf>,
    },
}

/// Commands of `audit`.
#[derive(Debug, Subcommand)]
pub enum Audit {
    /// Show its entries, oldest first
    Show(AuditShow),
    /// Check the chain from the first line to the last: exit code 1 where a line was changed, removed, added or cut off
    Verify {
        /// Begin with the first entry that is there: older files were moved elsewhere
        #[arg(long)]
        partial: bool,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Write a page about it, which a browser shows without a network: runs, packages, what was denied, what changed. Checks the chain as
    /// verify does
    Report {
        /// The page, which is written anew
        #[arg(long, value_name = "FILE")]
        html: PathBuf,
        /// What the last 30m, 24h or 7d or the time since 2026-01-31 or 2026-01-31T12:00:00Z came to; the chain is checked as a whole
        #[arg(long, value_name = "T")]
        since: Option<String>,
        /// Begin with the first entry that is there: older files were moved elsewhere
        #[arg(long)]
        partial: bool,
    },
    /// Print where it is
    Path,
}

/// Flags of `adopt`.
#[derive(Debug, Args)]
pub struct Adopt {
    /// The clients, as claude-desktop or cursor; without one all of them
    #[arg(value_name = "CLIENT")]
    pub clients: Vec<String>,
    /// Ask no question
    #[arg(short, long)]
    pub yes: bool,
    /// `host`: run packages of npm and PyPI by the interpreter of this machine
    #[arg(long, value_name = "host")]
    pub runtime: Option<HostRuntime>,
    /// Show what would be changed, and change nothing
    #[arg(long, conflicts_with = "yes")]
    pub dry_run: bool,
    /// As JSON; with --dry-run or --yes
    #[arg(long)]
    pub json: bool,
}

/// Commands of `client`.
#[derive(Debug, Subcommand)]
pub enum Client {
    /// List them: which run caged, and which do not
    Ls {
        /// The clients; without one all of them
        #[arg(value_name = "CLIENT")]
        clients: Vec<String>,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Have a client start a package
    Add {
        /// The client
        #[arg(value_name = "CLIENT")]
        client: String,
        /// The package
        #[arg(value_name = "REF")]
        reference: String,
        /// What the client calls it; the last part of the package's name without it
        #[arg(long, value_name = "NAME")]
        name: Option<String>,
        /// Arguments of the server; flags of `smcp run` before them, up to another `--`
        #[arg(last = true, value_name = "[FLAGS --] ARGS")]
        words: Vec<String>,
    },
    /// Take a server out of a client's file
    Rm {
        /// The client
        #[arg(value_name = "CLIENT")]
        client: String,
        /// What the client calls it
        #[arg(value_name = "NAME")]
        name: String,
    },
}

/// Flags of `undo`.
#[derive(Debug, Args)]
pub struct Undo {
    /// Where somebody changed a file since: put back what smcp changed of it, and keep the rest
    #[arg(long)]
    pub entries: bool,
}

/// Flags of `audit show`.
#[derive(Debug, Args)]
pub struct AuditShow {
    /// Entries of one run alone
    #[arg(long, value_name = "RUN")]
    pub run: Option<String>,
    /// Entries of the last 30m, 24h or 7d, or since a time as 2026-01-31 or 2026-01-31T12:00:00Z
    #[arg(long, value_name = "T")]
    pub since: Option<String>,
    /// Entries of runs whose reference or name contains this
    #[arg(long, value_name = "TEXT")]
    pub package: Option<String>,
    /// Ends of this cause alone, as exited, denied, memory or lost
    #[arg(long, value_name = "CAUSE")]
    pub cause: Option<String>,
    /// Entries of this kind alone: begin, denied, call, changed or end
    #[arg(long, value_name = "EVENT")]
    pub event: Option<String>,
    /// The newest N of them
    #[arg(short = 'n', value_name = "N")]
    pub last: Option<usize>,
    /// Go on as entries come
    #[arg(short, long)]
    pub follow: bool,
    /// As in the log: one JSON object a line
    #[arg(long)]
    pub json: bool,
}

/// Flags of `learn`: those of `run`, and its own.
#[derive(Debug, Args)]
pub struct Learn {
    /// Grant every public address for this run, after a question on the terminal
    #[arg(long)]
    pub permissive: bool,
    /// Write the permissions to a file, in place of stderr
    #[arg(short, long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// The run.
    #[command(flatten)]
    pub run: Run,
}

/// Flags of `test`: those of `run`, and its own.
#[derive(Debug, Args)]
pub struct Test {
    /// Call this tool once everything is listed
    #[arg(long, value_name = "NAME")]
    pub call: Option<String>,
    /// Its arguments, a JSON object
    #[arg(long, value_name = "JSON", requires = "call")]
    pub args: Option<String>,
    /// Compare with what this file has, which --write-expect wrote
    #[arg(long, value_name = "FILE")]
    pub expect: Option<PathBuf>,
    /// Write what was seen to a file, for --expect
    #[arg(long, value_name = "FILE", conflicts_with = "expect")]
    pub write_expect: Option<PathBuf>,
    /// Also write the outcome as a report of JUnit's
    #[arg(long, value_name = "FILE")]
    pub junit: Option<PathBuf>,
    /// The run.
    #[command(flatten)]
    pub run: Run,
}

/// Flags of `bundle`: those of `run`, and its own.
#[derive(Debug, Args)]
pub struct BundleOf {
    /// The directory, which is made
    #[arg(short, long, value_name = "DIR")]
    pub output: PathBuf,
    /// The run.
    #[command(flatten)]
    pub run: Run,
}

/// Flags of `run`.
#[derive(Clone, Debug, Args)]
pub struct Run {
    /// The package, and arguments of the server: everything after REF is the server's, flags too
    #[arg(value_name = "REF [ARGS]", required_unless_present = "bundle", num_args = 1.., trailing_var_arg = true)]
    pub server: Vec<String>,
    /// In place of REF: what `smcp bundle` wrote, with what was granted there; flags add to that, and arguments take the place of
    /// those
    #[arg(long, value_name = "DIR")]
    pub bundle: Option<PathBuf>,
    /// Registry of names without one
    #[arg(long, value_name = "URL")]
    pub registry: Option<String>,
    /// Use no network: what is in the store must do
    #[arg(long, conflicts_with = "refresh")]
    pub offline: bool,
    /// Ask the registry also where the store has a recent answer
    #[arg(long)]
    pub refresh: bool,
    /// How it is made, of a source.
    #[command(flatten)]
    pub making: Making,
    /// Memory of the cage, as 512M or 1Gi
    #[arg(long, value_name = "SIZE")]
    pub memory: Option<String>,
    /// CPU rate in thousandths of one CPU
    #[arg(long, value_name = "MILLICORES")]
    pub max_cpu: Option<String>,
    /// CPU time of the whole process tree, as 5m or 1h30m
    #[arg(long, value_name = "T")]
    pub cpu_time: Option<String>,
    /// Processes and threads
    #[arg(long, value_name = "N")]
    pub pids: Option<String>,
    /// Open descriptors of one process
    #[arg(long, value_name = "N")]
    pub fds: Option<String>,
    /// Wall clock of the run, as 5m or 1h30m
    #[arg(long, value_name = "T")]
    pub timeout: Option<String>,
    /// Grant a file or directory of this machine; without a mode read-only
    #[arg(long, value_name = "SRC[:DST][:ro|rw]")]
    pub mount: Vec<String>,
    /// Grant a file or directory read-only, at the same path
    #[arg(long, value_name = "P")]
    pub allow_read: Vec<PathBuf>,
    /// Grant a file or directory read-write, at the same path
    #[arg(long, value_name = "P")]
    pub allow_write: Vec<PathBuf>,
    /// Grant what a file of another tool says: a permission profile of ToolHive's, or an entry of Docker's MCP catalog, of which
    /// #NAME names one of several
    #[arg(long, value_name = "FILE[#NAME]")]
    pub permissions: Vec<String>,
    /// Hide a directory of this machine that lies in what is granted
    #[arg(long, value_name = "P")]
    pub deny: Vec<PathBuf>,
    /// Let the server start other programs: all, or those named by --allow-subprocess=PATH
    #[arg(long, value_name = "PATH", num_args = 0..=1, require_equals = true, default_missing_value = "")]
    pub allow_subprocess: Vec<String>,
    /// Let the server connect to HOST, *.SUFFIX, ADDRESS, [V6] or a range of addresses; without a port to 443
    #[arg(long, value_name = "HOST[:PORT,PORT]")]
    pub allow_net: Vec<String>,
    /// Let the server connect to a TCP port of this machine's loopback, at the same port of its own
    #[arg(long, value_name = "PORT")]
    pub allow_host_port: Vec<String>,
    /// Let the server connect to every public address
    #[arg(long)]
    pub allow_all_net: bool,
    /// Where no namespaces can be had, make do with the ports of what is granted: any host on them is reached
    #[arg(long)]
    pub net_by_port: bool,
    /// Set a variable, or pass on the caller's
    #[arg(long, value_name = "K[=V]")]
    pub env: Vec<String>,
    /// Set the variables of a file of K=V lines
    #[arg(long, value_name = "F")]
    pub env_file: Vec<PathBuf>,
    /// Set a variable to a secret, which stands on no command line: the caller's of that name, or env:NAME, file:PATH,
    /// command:PROGRAM ARGUMENTS, keyring:SERVICE/ACCOUNT
    #[arg(long, value_name = "K[=SOURCE]")]
    pub secret: Vec<String>,
    /// Grant a directory read-write and start the server there
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<PathBuf>,
    /// The least tier of the cage that is acceptable: 1, 2 or 3 (`smcp doctor` shows this machine's)
    #[arg(long, value_name = "N")]
    pub tier: Option<u32>,
    /// The least level of certification that is acceptable: 0 to 3
    #[arg(long, value_name = "N")]
    pub min_cert_level: Option<String>,
    /// Warn of a score below N, of 100
    #[arg(long, value_name = "N")]
    pub warning_threshold: Option<String>,
    /// Refuse what is not in the project's smcp.lock as it is there
    #[arg(long)]
    pub locked: bool,
    /// On a terminal, do not ask before a package with a low score is run; clients get the warning all the same
    #[arg(long)]
    pub trust: bool,
    /// Use another set of the package's lasting directories; where it asks for none, its HOME lasts. NAME is one plain
    /// word of letters, digits, `.`, `_` and `-`
    #[arg(long, value_name = "NAME")]
    pub state: Option<String>,
    /// How bytes pass between client and server: by a filter that keeps stdout clear of what is no message, which is what
    /// `auto` means, or directly by the client's own descriptors
    #[arg(long, value_name = "auto|filter|direct")]
    pub relay: Option<Relay>,
    /// Write a line of the audit log for each call of a tool: its name, a digest of its arguments, how long, to what end
    #[arg(long)]
    pub audit_calls: bool,
    /// As root: who the server is, in place of an unprivileged uid of its own
    #[arg(long, value_name = "UID|root")]
    pub user: Option<String>,
    /// Print the whole plan and start nothing
    #[arg(long)]
    pub dry_run: bool,
    /// As JSON: the plan of --dry-run, the findings of a test
    #[arg(long)]
    pub json: bool,
}

/// What decides, beside its name, what is made of npm:NAME, pypi:NAME or ./dir.
#[derive(Clone, Debug, Default, Args)]
pub struct Making {
    /// Of npm:NAME and pypi:NAME: which program of the package is the server, where it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// Of npm:NAME: run the install scripts of this package, the one itself or one that it depends on, in the cage of the install
    #[arg(long, value_name = "NAME")]
    pub allow_scripts: Vec<String>,
    /// Of mcp:NAME: which of its packages, where it has several
    #[arg(long, value_name = "npm|pypi|oci|mcpb")]
    pub package_type: Option<PackageType>,
    /// `host`, of npm:NAME, pypi:NAME and ./dir: run it by the interpreter of this machine; `bun` or `deno`, of npm:NAME: by that
    #[arg(long, value_name = "host|bun|deno")]
    pub runtime: Option<RunBy>,
}

impl Run {
    /// Of a package, for a client of smcp's own.
    ///
    /// # Errors
    /// What clap says of it.
    pub fn of(reference: &str, arguments: &[String]) -> Result<Run, clap::Error> {
        let words = ["smcp", "run", "--trust", "--relay", "direct", "--", reference].map(str::to_owned);
        let words = words.iter().chain(arguments);
        let RunAlone { command: TheRun::Run(run), .. } = RunAlone::try_parse_from(words)?;
        Ok(*run)
    }

    /// The package as typed.
    pub fn reference(&self) -> &str {
        self.server.first().map_or("", String::as_str)
    }

    /// Arguments of the server.
    pub fn args(&self) -> &[String] {
        self.server.get(1..).unwrap_or_default()
    }
}

/// The ways of bytes between client and server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum Relay {
    /// What is best: the filter.
    #[default]
    Auto,
    /// Lines that are no messages go to stderr, and a failure answers what the client asked.
    Filter,
    /// The server has the client's descriptors.
    Direct,
}

/// Flags of `scan`.
#[derive(Debug, Args)]
pub struct Scan {
    /// The package
    #[arg(value_name = "REF")]
    pub reference: String,
    /// As JSON
    #[arg(long)]
    pub json: bool,
    /// Arguments of the server
    #[arg(last = true, value_name = "ARGS")]
    pub arguments: Vec<String>,
}

/// Flags of `login`.
#[derive(Debug, Args)]
pub struct Login {
    /// HOST[:PORT]; without one the configured registry
    #[arg(value_name = "REGISTRY")]
    pub registry: Option<String>,
    /// A token to be sent as it is; `-` reads it from stdin
    #[arg(long, value_name = "T", conflicts_with_all = ["username", "password_stdin"], required_unless_present = "username")]
    pub token: Option<String>,
    /// Name of the account
    #[arg(short, long, value_name = "U", requires = "password_stdin")]
    pub username: Option<String>,
    /// Read its password from stdin
    #[arg(long, requires = "username")]
    pub password_stdin: bool,
}

/// Flags of `build`.
#[derive(Debug, Args)]
pub struct Build {
    /// npm:NAME[@V], pypi:NAME[==V], mcp:NAME[@V], ./dir with an smcp.toml, ./x.mcpb, or mcpb:URL@sha256:HEX
    #[arg(value_name = "SOURCE")]
    pub source: String,
    /// Name of the package: a reference, or oci-layout:DIR[:TAG]
    #[arg(short, long, value_name = "REF")]
    pub tag: String,
    /// Of mcp:NAME: which of its packages, where it has several
    #[arg(long, value_name = "npm|pypi|oci|mcpb")]
    pub package_type: Option<PackageType>,
    /// Which program of the package is the server, where it has several
    #[arg(long, value_name = "NAME")]
    pub bin: Option<String>,
    /// Run the install scripts of this package, the one itself or one that it depends on, in the cage of the install
    #[arg(long, value_name = "NAME")]
    pub allow_scripts: Vec<String>,
    /// Version of node, a range of npm such as 22
    #[arg(long, value_name = "RANGE")]
    pub node: Option<String>,
    /// Bring a Debian package along whose programs the server starts, such as git
    #[arg(long, value_name = "PACKAGE")]
    pub debian: Vec<String>,
    /// `host`: bring no interpreter, use the one of the machine that runs the package; `bun` or `deno`, of npm:NAME: bring that in the
    /// place of node
    #[arg(long, value_name = "host|bun|deno")]
    pub runtime: Option<RunBy>,
    /// An OCI image in the place of smcp's own base and interpreter, of npm:NAME and pypi:NAME: it has to have node, or a python, in its PATH
    #[arg(long, value_name = "IMAGE", conflicts_with_all = ["runtime", "node", "debian"])]
    pub base: Option<String>,
    /// Let npm and pip download with your own rights and settings, in place of in a cage
    #[arg(long)]
    pub uncaged: bool,
    /// Make the shared layers (base, node, python) again
    #[arg(long)]
    pub refresh: bool,
}

/// Values of `--package-type`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum PackageType {
    /// Of npm.
    Npm,
    /// Of PyPI.
    Pypi,
    /// An image.
    Oci,
    /// A bundle.
    Mcpb,
}

impl PackageType {
    /// As the registry of servers has it.
    pub fn word(self) -> &'static str {
        match self {
            PackageType::Npm => "npm",
            PackageType::Pypi => "pypi",
            PackageType::Oci => "oci",
            PackageType::Mcpb => "mcpb",
        }
    }
}

/// Values of `--runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum RunBy {
    /// The interpreter of the machine that runs the package.
    Host,
    /// bun, from npm.
    Bun,
    /// deno, from npm.
    Deno,
}

/// What the flag means; without it a package brings the usual one.
pub fn runtime(flag: Option<RunBy>) -> Runtime {
    match flag {
        None => Runtime::Own,
        Some(RunBy::Host) => Runtime::Host,
        Some(RunBy::Bun) => Runtime::Bun,
        Some(RunBy::Deno) => Runtime::Deno,
    }
}

/// The one value of `adopt --runtime`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum HostRuntime {
    /// The interpreter of the machine that runs the package.
    Host,
}

/// Commands of `key`.
#[derive(Debug, Subcommand)]
pub enum Key {
    /// Make a pair of keys: PREFIX.key, encrypted where there is a passphrase (SMCP_KEY_PASSWORD, COSIGN_PASSWORD, a
    /// terminal), and PREFIX.pub
    Generate {
        /// What the two files begin with
        #[arg(long, value_name = "PREFIX", default_value = "smcp")]
        output: PathBuf,
        /// Its algorithm
        #[arg(long = "type", value_name = "TYPE", default_value = "ecdsa")]
        kind: KeyType,
    },
}

/// Algorithms of keys.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum KeyType {
    /// ECDSA over P-256 with SHA-256, which every tool reads
    Ecdsa,
    /// Ed25519
    Ed25519,
}

/// Flags of `sign`.
#[derive(Debug, Args)]
pub struct Sign {
    /// The package
    #[arg(value_name = "REF")]
    pub reference: String,
    /// The private key: PKCS#8 in PEM, or cosign's encrypted file
    #[arg(long, value_name = "F")]
    pub key: PathBuf,
}

/// Flags of `attest`.
#[derive(Debug, Args)]
pub struct Attest {
    /// The package
    #[arg(value_name = "REF")]
    pub reference: String,
    /// What is said, as JSON
    #[arg(long, value_name = "F")]
    pub predicate: PathBuf,
    /// What kind of thing that is: certification, revocation, or a URI
    #[arg(long = "type", value_name = "TYPE", default_value = "certification")]
    pub kind: String,
    /// The private key: PKCS#8 in PEM, or cosign's encrypted file
    #[arg(long, value_name = "F")]
    pub key: PathBuf,
}

/// Flags of `verify`.
#[derive(Debug, Args)]
pub struct Verify {
    /// The package
    #[arg(value_name = "REF")]
    pub reference: String,
    /// A public key whose word counts, PEM; more of them by more flags
    #[arg(long, value_name = "F", required_unless_present = "trust_root")]
    pub key: Vec<PathBuf>,
    /// Whose certificates count, sigstore's trusted_root.json; with --identity and --issuer
    #[arg(long, value_name = "F", requires = "identity")]
    pub trust_root: Option<PathBuf>,
    /// Whom such a certificate must name: an e-mail address or the URI of a workflow
    #[arg(long, value_name = "WHO", requires_all = ["trust_root", "issuer"])]
    pub identity: Option<String>,
    /// Who must have vouched for that
    #[arg(long, value_name = "URL", requires = "identity")]
    pub issuer: Option<String>,
    /// Use no network: what is in the store must do
    #[arg(long)]
    pub offline: bool,
    /// As JSON
    #[arg(long)]
    pub json: bool,
}

/// Commands of `policy`.
#[derive(Debug, Subcommand)]
pub enum Policy {
    /// Show each value in force and where it came from
    Show {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Show whether a package would run, with all reasons: exit code 121 where it would not
    Check {
        /// The package
        #[arg(value_name = "REF")]
        reference: String,
        /// How it is made, of a source.
        #[command(flatten)]
        making: Making,
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}

/// Commands of `cache`.
#[derive(Debug, Subcommand)]
pub enum Cache {
    /// List the packages in the store
    Ls {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
    /// Remove packages; what others share stays
    Rm {
        /// Packages
        #[arg(value_name = "REF", required_unless_present = "all")]
        references: Vec<String>,
        /// All of them
        #[arg(long, conflicts_with = "references")]
        all: bool,
    },
    /// Remove what no package needs, and what is over cache_max_size or older than cache_max_age
    Gc,
    /// Read all of it once: exit code 1 where something is damaged or missing
    Verify {
        /// As JSON
        #[arg(long)]
        json: bool,
    },
}
