//! What callers read of a runtime: the last line of its log with `level` error, and stderr.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Read, Seek, Write};
use std::path::Path;
use std::sync::Mutex;

use serde_json::json;
use tracing::field::{Field, Visit};
use tracing::{Event, Level, Metadata, Subscriber, span};

use super::cli::LogFormat;

/// The log that the caller named, if it did.
#[derive(Debug)]
pub struct Log {
    file: Option<File>,
    format: LogFormat,
    /// Where each process writes what libcontainer takes for errors: one says of itself what another one knows the reason of.
    heard: File,
}

/// Whether what libcontainer does is said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Detail {
    /// Its first error alone, behind what ended the command.
    Reason,
    /// All of it.
    Everything,
}

impl Log {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: Option<&Path>, format: LogFormat) -> io::Result<Log> {
        let file = path.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
        let heard = File::from(rustix::fs::memfd_create("heard", rustix::fs::MemfdFlags::CLOEXEC)?);
        Ok(Log { file, format, heard })
    }

    /// Writes what ended the command: to the log where there is one, and to stderr.
    pub fn fail(&self, message: &str) {
        let message = match self.reason() {
            // The same words come by way of the error as well, where it has them.
            Some(reason) if !reason.rsplit(": ").next().is_some_and(|end| message.contains(end)) => {
                format!("{message} ({reason})")
            }
            _ => message.to_owned(),
        };
        self.line("error", &message);
        if self.file.is_some() {
            let _ = writeln!(io::stderr(), "{message}");
        }
    }

    /// Writes what stopped nothing.
    pub fn warn(&self, message: &str) {
        self.line("warning", message);
    }

    /// A line, in one piece: processes of a container that comes into being write here as well.
    fn line(&self, level: &str, message: &str) {
        let time = jiff::Timestamp::now();
        let line = match (&self.file, self.format) {
            (Some(_), LogFormat::Json) => json!({"level": level, "msg": message, "time": time.to_string()}).to_string(),
            _ => format!("time=\"{time}\" level={level} msg={message:?}"),
        };
        let line = format!("{line}\n");
        let _ = match &self.file {
            Some(file) => (&*file).write_all(line.as_bytes()),
            None => io::stderr().write_all(line.as_bytes()),
        };
    }

    /// The first error that libcontainer knew of.
    fn reason(&self) -> Option<String> {
        let mut text = String::new();
        let mut heard = &self.heard;
        heard.rewind().ok()?;
        heard.read_to_string(&mut text).ok()?;
        text.lines().next().map(str::to_owned)
    }

    /// Hears what libcontainer says.
    ///
    /// # Errors
    /// The kernel's.
    pub fn listen(&self, detail: Detail) -> io::Result<()> {
        let file = self.file.as_ref().map(File::try_clone).transpose()?;
        let heard = self.heard.try_clone()?;
        let words = Words { log: Mutex::new(Log { file, format: self.format, heard }), detail };
        tracing::subscriber::set_global_default(words).map_err(io::Error::other)
    }
}

struct Words {
    log: Mutex<Log>,
    detail: Detail,
}

/// All of it as `debug`: what is an error to libcontainer need not end the command.
impl Subscriber for Words {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        let most = if self.detail == Detail::Everything { Level::DEBUG } else { Level::ERROR };
        *metadata.level() <= most
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        let Ok(log) = self.log.lock() else { return };
        if *event.metadata().level() == Level::ERROR {
            let _ = (&log.heard).write_all(format!("{}\n", text.0.trim().replace('\n', " ")).as_bytes());
        }
        if self.detail == Detail::Everything {
            log.line("debug", text.0.trim());
        }
    }

    fn enter(&self, _: &span::Id) {}

    fn exit(&self, _: &span::Id) {}
}

struct Text(String);

impl Visit for Text {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        use fmt::Write as _;
        let _ = match field.name() {
            "message" => write!(self.0, " {value:?}"),
            name => write!(self.0, " {name}={value:?}"),
        };
    }
}
