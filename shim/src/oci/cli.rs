//! The command line of runc, as containerd's shim, conmon and docker use it. A table of its own: a run makes none of it.

// The comments are the help text.
#![allow(rustdoc::broken_intra_doc_links, rustdoc::invalid_html_tags)]

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand, ValueEnum};
use runtime::oci::User;

/// An OCI runtime whose containers are those of smcp's cages.
#[derive(Debug, Parser)]
#[command(name = "smcp-oci", version = VERSION, max_term_width = 100)]
pub struct Cli {
    /// What goes for each command.
    #[command(flatten)]
    pub globals: Globals,
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// What callers look for is the version of the specification.
const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "\nspec: 1.2.0");

/// Flags of every command.
#[derive(Debug, Args)]
pub struct Globals {
    /// Where containers are remembered; /run/smcp-oci, or below XDG_RUNTIME_DIR
    #[arg(long, value_name = "DIR")]
    pub root: Option<PathBuf>,
    /// Write what goes wrong to this file, too
    #[arg(long, value_name = "FILE")]
    pub log: Option<PathBuf>,
    /// The form of that
    #[arg(long, value_name = "FORMAT", default_value = "text")]
    pub log_format: LogFormat,
    /// Let systemd make cgroups: cgroupsPath is SLICE:PREFIX:NAME
    #[arg(long)]
    pub systemd_cgroup: bool,
    /// Known for the sake of callers: what can be had is found out
    #[arg(long, value_name = "auto|true|false", num_args = 0..=1, require_equals = true)]
    pub rootless: Option<String>,
    /// Known for the sake of callers: there are no checkpoints
    #[arg(long, value_name = "PATH", hide = true)]
    pub criu: Option<PathBuf>,
    /// Say what libcontainer does
    #[arg(long)]
    pub debug: bool,
}

/// Forms of the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum LogFormat {
    /// `time="…" level=error msg="…"`
    Text,
    /// A JSON object a line
    Json,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Make a container; its program waits for the start
    Create(Create),
    /// Make a container, start it and wait for its end
    Run(Run),
    /// Start the program of a container
    Start {
        /// Containers
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Print the state of a container
    State {
        /// The container
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Send a signal to a container's first process
    Kill {
        /// To all its processes
        #[arg(short, long)]
        all: bool,
        /// The container
        #[arg(value_name = "ID")]
        id: String,
        /// Name or number
        #[arg(value_name = "SIGNAL", default_value = "SIGTERM")]
        signal: String,
    },
    /// Remove what is left of a container
    Delete {
        /// Kill it where it runs; one that is not there is no error
        #[arg(short, long)]
        force: bool,
        /// Containers
        #[arg(required = true, value_name = "ID")]
        ids: Vec<String>,
    },
    /// Run a further process in a container
    Exec(Box<Exec>),
    /// List the processes of a container
    Ps {
        /// `table` or `json`
        #[arg(short, long, default_value = "table")]
        format: ListFormat,
        /// The container
        #[arg(value_name = "ID")]
        id: String,
        /// Arguments of ps(1); -ef without any
        #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<String>,
    },
    /// List containers
    List {
        /// `table` or `json`
        #[arg(short, long, default_value = "table")]
        format: ListFormat,
        /// Names alone
        #[arg(short, long)]
        quiet: bool,
    },
    /// Print what a container uses, again and again until it ends
    Events {
        /// How often
        #[arg(long, value_name = "T", default_value = "5s")]
        interval: String,
        /// Once
        #[arg(long)]
        stats: bool,
        /// The container
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Freeze a container
    Pause {
        /// The container
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Thaw a container
    Resume {
        /// The container
        #[arg(value_name = "ID")]
        id: String,
    },
    /// Set other limits of a container
    Update(Box<Update>),
    /// Write a config.json to begin with
    Spec {
        /// Where to
        #[arg(short, long, value_name = "DIR", default_value = ".")]
        bundle: PathBuf,
        /// For a user without privileges
        #[arg(long)]
        rootless: bool,
    },
    /// Print what this runtime knows, as JSON
    Features,
}

/// Flags of `create`, and of `run`.
#[derive(Debug, Args)]
pub struct Create {
    /// The directory with config.json
    #[arg(short, long, value_name = "DIR", default_value = ".")]
    pub bundle: PathBuf,
    /// A socket that gets the container's terminal
    #[arg(long, value_name = "PATH")]
    pub console_socket: Option<PathBuf>,
    /// A file that gets the number of the container's first process
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// A socket that gets a descriptor of that process
    #[arg(long, value_name = "PATH")]
    pub pidfd_socket: Option<PathBuf>,
    /// Move the root in place of exchanging it, where it is on a ramdisk
    #[arg(long)]
    pub no_pivot: bool,
    /// Leave the container the caller's session keyring
    #[arg(long)]
    pub no_new_keyring: bool,
    /// Leave the container so many descriptors above standard error
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: i32,
    /// The container's name
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Flags of `run`.
#[derive(Debug, Args)]
pub struct Run {
    /// Do not wait for its end
    #[arg(short, long)]
    pub detach: bool,
    /// Do not remove it at its end
    #[arg(long)]
    pub keep: bool,
    /// Known for the sake of callers: orphans are the machine's
    #[arg(long, hide = true)]
    pub no_subreaper: bool,
    /// Those of `create`.
    #[command(flatten)]
    pub create: Create,
}

/// Flags of `exec`.
#[derive(Debug, Args)]
pub struct Exec {
    /// A file with the whole `process`
    #[arg(short, long, value_name = "FILE")]
    pub process: Option<PathBuf>,
    /// Where it starts
    #[arg(long, value_name = "DIR")]
    pub cwd: Option<String>,
    /// A variable
    #[arg(short, long, value_name = "K=V")]
    pub env: Vec<String>,
    /// With a terminal
    #[arg(short, long)]
    pub tty: bool,
    /// Who runs it
    #[arg(short, long, value_name = "UID[:GID]")]
    pub user: Option<User>,
    /// A supplementary group
    #[arg(short = 'g', long, value_name = "GID")]
    pub additional_gids: Vec<u32>,
    /// Do not wait for its end
    #[arg(short, long)]
    pub detach: bool,
    /// A file that gets its number
    #[arg(long, value_name = "FILE")]
    pub pid_file: Option<PathBuf>,
    /// A socket that gets a descriptor of it
    #[arg(long, value_name = "PATH")]
    pub pidfd_socket: Option<PathBuf>,
    /// A socket that gets its terminal
    #[arg(long, value_name = "PATH")]
    pub console_socket: Option<PathBuf>,
    /// Its SELinux label
    #[arg(long, value_name = "LABEL")]
    pub process_label: Option<String>,
    /// Its AppArmor profile
    #[arg(long, value_name = "PROFILE")]
    pub apparmor: Option<String>,
    /// exec(2) gives it no more than it has
    #[arg(long)]
    pub no_new_privs: bool,
    /// A capability beside the container's
    #[arg(short, long, value_name = "CAP")]
    pub cap: Vec<String>,
    /// A cgroup below the container's
    #[arg(long, value_name = "PATH")]
    pub cgroup: Option<String>,
    /// Also where the container is paused
    #[arg(long)]
    pub ignore_paused: bool,
    /// Leave it so many descriptors above standard error
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub preserve_fds: i32,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
    /// Program and arguments
    #[arg(value_name = "ARGS", trailing_var_arg = true, allow_hyphen_values = true)]
    pub arguments: Vec<String>,
}

/// Flags of `update`.
#[derive(Debug, Args)]
pub struct Update {
    /// A file with `linux.resources`, or - for stdin; the others do not count then
    #[arg(short, long, value_name = "FILE")]
    pub resources: Option<PathBuf>,
    /// Bytes of memory; -1 for no limit
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory: Option<i64>,
    /// Bytes of memory that it is pushed back to where there is little
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_reservation: Option<i64>,
    /// Bytes of memory and swap
    #[arg(long, value_name = "BYTES", allow_hyphen_values = true)]
    pub memory_swap: Option<i64>,
    /// Its part of the CPUs
    #[arg(long, value_name = "N")]
    pub cpu_share: Option<u64>,
    /// Microseconds in which the quota counts
    #[arg(long, value_name = "US")]
    pub cpu_period: Option<u64>,
    /// Microseconds of CPU in a period
    #[arg(long, value_name = "US", allow_hyphen_values = true)]
    pub cpu_quota: Option<i64>,
    /// CPUs
    #[arg(long, value_name = "LIST")]
    pub cpuset_cpus: Option<String>,
    /// Nodes of memory
    #[arg(long, value_name = "LIST")]
    pub cpuset_mems: Option<String>,
    /// Processes and threads; -1 for no limit
    #[arg(long, value_name = "N", allow_hyphen_values = true)]
    pub pids_limit: Option<i64>,
    /// Its part of the disks
    #[arg(long, value_name = "N")]
    pub blkio_weight: Option<u16>,
    /// The container
    #[arg(value_name = "ID")]
    pub id: String,
}

/// Forms of lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ListFormat {
    /// For people
    Table,
    /// An array
    Json,
}
