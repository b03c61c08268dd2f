//! What callers read of a runtime: the last line of its log with `level` error, and stderr.

use std::fmt;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
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
}

impl Log {
    /// Opens it.
    ///
    /// # Errors
    /// The kernel's.
    pub fn open(path: Option<&Path>, format: LogFormat) -> io::Result<Log> {
        let file = path.map(|path| OpenOptions::new().create(true).append(true).open(path)).transpose()?;
        Ok(Log { file, format })
    }

    /// Writes what ended the command: to the log where there is one, and to stderr.
    pub fn fail(&self, message: &str) {
        self.line("error", message);
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

    /// Has libcontainer's words written here, which `--debug` asks for.
    pub fn listen(&self) -> io::Result<()> {
        let file = self.file.as_ref().map(File::try_clone).transpose()?;
        let words = Words { log: Mutex::new(Log { file, format: self.format }) };
        tracing::subscriber::set_global_default(words).map_err(io::Error::other)
    }
}

struct Words {
    log: Mutex<Log>,
}

/// All of it as `debug`: what is an error to libcontainer need not end the command.
impl Subscriber for Words {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        *metadata.level() <= Level::DEBUG
    }

    fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
        span::Id::from_u64(1)
    }

    fn record(&self, _: &span::Id, _: &span::Record<'_>) {}

    fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}

    fn event(&self, event: &Event<'_>) {
        let mut text = Text(String::new());
        event.record(&mut text);
        if let Ok(log) = self.log.lock() {
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
