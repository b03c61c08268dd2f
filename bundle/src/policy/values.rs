//! The words of a policy. In each order the stricter word is the greater one.

use std::collections::BTreeSet;
use std::fmt;
use std::str::FromStr;

/// A set of words that a value may be, each with its spelling.
macro_rules! words {
    ($(#[$about:meta])* $name:ident { $($(#[$doc:meta])* $word:ident = $text:literal),+ $(,)? }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum $name { $($(#[$doc])* $word),+ }

        impl $name {
            const ALL: &[(&'static str, $name)] = &[$(($text, $name::$word)),+];
        }

        impl FromStr for $name {
            type Err = String;

            fn from_str(text: &str) -> Result<$name, String> {
                among(text, $name::ALL)
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self { $($name::$word => $text),+ })
            }
        }
    };
}

words! {
    /// `cert_level_mode`: what a level below the least one does.
    #[derive(Default)]
    LevelMode {
        /// Nothing.
        Disabled = "disabled",
        /// It warns.
        Warn = "warn",
        /// It stops the run.
        #[default]
        Strict = "strict",
    }
}

words! {
    /// `unscored`: what no score does.
    #[derive(Default)]
    Unscored {
        /// Nothing.
        Allow = "allow",
        /// It warns.
        #[default]
        Warn = "warn",
        /// It stops the run.
        Refuse = "refuse",
    }
}

words! {
    /// `hub_levels`: whether the unsigned word of a hub over TLS counts for its own packages.
    #[derive(Default)]
    HubLevels {
        /// It counts.
        #[default]
        Trust = "trust",
        /// It does not; what it says against a package does.
        Ignore = "ignore",
    }
}

words! {
    /// `new_permissions`: what becomes of a version that asks for more than the accepted one.
    #[derive(Default)]
    NewPermissions {
        /// It runs, and is the accepted one from then on.
        Allow = "allow",
        /// A person at a terminal is asked; else it stops.
        #[default]
        Ask = "ask",
        /// It stops until `smcp accept`.
        Refuse = "refuse",
    }
}

words! {
    /// `install_scripts`: whether a package may execute something when it is installed, where a user names it.
    #[derive(Default)]
    InstallScripts {
        /// It may, in the cage of the install.
        #[default]
        Allow = "allow",
        /// It may not, whoever names it.
        Refuse = "refuse",
    }
}

words! {
    /// `tools.pin`: what becomes of a tool that is described in another way than before.
    #[derive(Default)]
    Pin {
        /// Nothing.
        Allow = "allow",
        /// It warns.
        #[default]
        Warn = "warn",
        /// It is kept from the client.
        Block = "block",
    }
}

words! {
    /// `warning.channels`: where a warning is put.
    Channel {
        /// The server's instructions in the handshake.
        Instructions = "instructions",
        /// The descriptions of tools.
        Tools = "tools",
        /// The first result of a tool.
        Result = "result",
        /// A log notification.
        Notification = "notification",
    }
}

impl Channel {
    /// All of them, which is the default.
    pub fn all() -> BTreeSet<Channel> {
        Channel::ALL.iter().map(|(_, channel)| *channel).collect()
    }
}

/// Reads a number of a range.
pub(super) fn number(text: &str, least: u8, most: u8) -> Result<u8, String> {
    let digits = text.bytes().all(|b| b.is_ascii_digit());
    let number = text.parse().ok().filter(|number| digits && (least..=most).contains(number));
    number.ok_or_else(|| format!("{text:?} is no whole number from {least} to {most}"))
}

fn among<T: Copy>(text: &str, words: &[(&'static str, T)]) -> Result<T, String> {
    let found = words.iter().find(|(word, _)| *word == text).map(|(_, value)| *value);
    found.ok_or_else(|| {
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        format!("{text:?} is none of {}", known.join(", "))
    })
}
