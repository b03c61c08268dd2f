//! Why a layer is refused.

use std::fmt;
use std::io;
use std::path::PathBuf;

use distribution::Digest;
use distribution::system::Errno;
use serde::{Deserialize, Serialize};

/// Why a layer was not unpacked.
#[derive(Debug, thiserror::Error)]
pub enum UnpackError {
    /// What the archive holds is not taken.
    #[error("layer {layer}: {refusal}")]
    Refused {
        /// Digest of its blob.
        layer: Digest,
        /// What was refused and why.
        refusal: Refusal,
    },
    /// The content is not that which the image configuration promises.
    #[error("layer {layer}: E_DIFF_ID: its content is {found}, not {wanted}")]
    DiffId {
        /// Digest of its blob.
        layer: Digest,
        /// Digest of its content.
        found: Digest,
        /// Digest that the configuration states.
        wanted: Digest,
    },
    /// The layers of a package are too large together.
    #[error("E_BOMB: the package unpacks to more than {most} bytes")]
    PackageTooLarge {
        /// The most bytes that are taken.
        most: u64,
    },
    /// A package of smcp holds a layer that only the rules for other images take.
    #[error("layer {layer}: packages of smcp are unpacked by stricter rules: {what}")]
    TakenLeniently {
        /// Digest of its content.
        layer: Digest,
        /// The first thing that they refuse, printable.
        what: String,
    },
    /// The blob of a layer that has to be unpacked is not in the store.
    #[error("layer {0} is not in the store")]
    NoBlob(Digest),
    /// The store.
    #[error(transparent)]
    Store(#[from] distribution::Error),
    /// A file could not be written or the blob not be read.
    #[error("cannot unpack into {}: {source}", path.display())]
    Io {
        /// The directory that is unpacked into.
        path: PathBuf,
        /// What the system said.
        source: io::Error,
    },
}

impl UnpackError {
    /// The next step, where there is one.
    pub fn hint(&self) -> Option<String> {
        match self {
            UnpackError::NoBlob(_) => Some("smcp pull fetches what is missing".into()),
            UnpackError::Io { source, .. } if source.kind() == io::ErrorKind::StorageFull => {
                Some("free some space, for example by smcp cache rm, and run the command again".into())
            }
            UnpackError::Store(error) => error.hint(),
            _ => None,
        }
    }
}

/// One refusal: a code that stays the same, the entry where there is one, the reason.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Refusal {
    /// Kind of the refusal.
    pub code: Code,
    /// Name of the entry as it stands in the archive.
    pub entry: Option<Vec<u8>>,
    /// What is wrong with it.
    pub why: String,
}

impl Refusal {
    /// The same refusal about the entry `name`, unless it names one already.
    pub(super) fn of(mut self, name: &[u8]) -> Refusal {
        self.entry.get_or_insert_with(|| name.to_vec());
        self
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: ", self.code)?;
        if let Some(entry) = &self.entry {
            write!(f, "entry `{}`: ", escape(entry))?;
        }
        f.write_str(&self.why)
    }
}

/// A name as it may be printed: no control characters, no invalid text, at most
/// 200 bytes of it.
pub(super) fn escape(name: &[u8]) -> String {
    const LONGEST: usize = 200;
    let mut text = String::new();
    for chunk in name[..name.len().min(LONGEST)].utf8_chunks() {
        for c in chunk.valid().chars() {
            match c {
                '\\' | '`' => text.extend(['\\', c]),
                // Also the marks that make a terminal write from right to left.
                c if c.is_control() || is_format(c) => text.extend(c.escape_unicode()),
                c => text.push(c),
            }
        }
        for byte in chunk.invalid() {
            text.push_str(&format!("\\x{byte:02x}"));
        }
    }
    if name.len() > LONGEST {
        text.push('…');
    }
    text
}

fn is_format(c: char) -> bool {
    matches!(c, '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2060}'..='\u{206f}' | '\u{feff}')
}

/// What stops an unpacking: a refusal or the system.
#[derive(Debug, Serialize, Deserialize)]
pub enum Stop {
    /// What the archive holds is not taken.
    Refused(Refusal),
    /// A file could not be written or the archive not be read.
    Io(#[serde(with = "told")] io::Error),
}

/// An error of the system, told to another process: by its number where it has one.
mod told {
    use super::*;
    use serde::{Deserializer, Serializer};

    pub(super) fn serialize<S: Serializer>(error: &io::Error, to: S) -> Result<S::Ok, S::Error> {
        (error.raw_os_error(), error.to_string()).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<io::Error, D::Error> {
        let (number, text) = <(Option<i32>, String)>::deserialize(from)?;
        Ok(number.map_or_else(|| io::Error::other(text), io::Error::from_raw_os_error))
    }

    type Result<T, E> = std::result::Result<T, E>;
}

impl Stop {
    pub(super) fn refused(code: Code, why: impl Into<String>) -> Stop {
        Stop::Refused(Refusal { code, entry: None, why: why.into() })
    }

    pub(super) fn of(self, name: &[u8]) -> Stop {
        match self {
            Stop::Refused(refusal) => Stop::Refused(refusal.of(name)),
            io => io,
        }
    }
}

impl From<io::Error> for Stop {
    fn from(error: io::Error) -> Stop {
        Stop::Io(error)
    }
}

impl From<Errno> for Stop {
    fn from(error: Errno) -> Stop {
        Stop::Io(error.into())
    }
}

pub(super) type Result<T> = std::result::Result<T, Stop>;

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $text:literal,)*) => {
        /// Kind of a refusal.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Code { $($(#[$doc])* $code,)* }

        impl fmt::Display for Code {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $(Code::$code => $text,)* })
            }
        }
    };
}

codes! {
    /// A name with `..`.
    PathDotdot = "E_PATH_DOTDOT",
    /// An entry below a symlink.
    SymlinkParent = "E_SYMLINK_PARENT",
    /// The same name twice.
    Dup = "E_DUP",
    /// The same name as a directory and as something else.
    TypeConflict = "E_TYPE_CONFLICT",
    /// A hard link to what the layer does not hold.
    LinkTarget = "E_LINK_TARGET",
    /// The root as something else than a directory.
    Root = "E_ROOT",
    /// A device node.
    Device = "E_DEVICE",
    /// The raw form of an overlay whiteout.
    RawWhiteout = "E_RAW_WHITEOUT",
    /// A named pipe.
    Fifo = "E_FIFO",
    /// An attribute that would steer the overlay.
    Xattr = "E_XATTR",
    /// A name that is too long or too deep.
    NameTooLong = "E_NAMETOOLONG",
    /// A whiteout without a name, below one, or of another kind than an empty file.
    Whiteout = "E_WHITEOUT",
    /// Headers that two readers understand differently.
    Ambiguous = "E_AMBIGUOUS",
    /// An extended header that cannot be read.
    Pax = "E_PAX",
    /// A global extended header that changes entries.
    PaxGlobal = "E_PAX_GLOBAL",
    /// An extended header of more than 1 MiB.
    HeaderTooLarge = "E_HEADER_SIZE",
    /// A header that cannot be read.
    Header = "E_HEADER",
    /// Data where none belongs.
    Payload = "E_PAYLOAD",
    /// An end that comes too early.
    Eof = "E_EOF",
    /// Data behind the end.
    Trailing = "E_TRAILING",
    /// A sparse file.
    Sparse = "E_SPARSE",
    /// A kind of entry that is not known.
    Type = "E_TYPE",
    /// More than a layer may hold, or compressed beyond measure.
    Bomb = "E_BOMB",
    /// Data that the media type's decompressor does not take.
    Compression = "E_COMPRESSION",
    /// A media type that is no layer's.
    MediaType = "E_MEDIA_TYPE",
}
