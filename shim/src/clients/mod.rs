//! The configuration files of clients: what servers they start, changed over to smcp and back.
//!
//! `table` has the clients as data; `dialect` reads a file into a [`tree::Node`], which says where everything stands; `recognise` and
//! `edit` are pure. `file` and `record` alone write, and commands are thin on top.

mod adopt;
mod client;
pub mod dialect;
mod diff;
pub mod edit;
pub mod entries;
mod file;
mod insert;
mod json;
mod known;
mod look;
mod own_path;
pub mod recognise;
mod record;
pub mod table;
mod toml;
pub mod tree;
mod undo;
mod yaml;

pub use adopt::adopt;
pub use client::client;
pub use undo::undo;

use table::{CLIENTS, Client};

/// A file that smcp has changed.
pub struct Changed {
    /// Whose file.
    pub client: &'static Client,
    /// The one server that the change is about.
    pub entry: String,
    /// All of it.
    pub text: String,
}

/// What smcp makes of a client's file whose every server it would run as `REF`, and what it would make of the file with a server more and
/// with each of them less: for what fuzzes it.
pub fn every_change(text: &str) -> Vec<Changed> {
    let mut found = Vec::new();
    for client in &CLIENTS {
        let Ok(Some(root)) = client.dialect.read(text) else { continue };
        let mut push = |entry: &str, text: String| found.push(Changed { client, entry: entry.into(), text });
        let words = ["/s", "run", "REF"].map(String::from);
        let name = "x\u{e9} y";
        insert::added(client, text, name, &words).into_iter().for_each(|after| push(name, after));
        for entry in entries::entries(&root, &client.shape) {
            let key = edit::Key::of(&entry);
            insert::removed(client, text, &key).into_iter().for_each(|after| push(&key.name, after));
            let Ok(start) = entry.start(&client.shape) else { continue };
            for replaced in 2..=start.words.len() {
                let after = edit::changed(text, &edit::put(text, client.dialect, &start, replaced, &words));
                let rest = start.words[replaced..].iter().map(|(word, _)| (*word).to_owned());
                let all: Vec<String> = words.iter().cloned().chain(rest).collect();
                if edit::is_as_meant((text, &after), client.dialect, &client.shape, &key, &all) {
                    push(&key.name, after);
                }
            }
            diff::lines(text, client.dialect, (&root, entry.value.span()), &start, &[]);
        }
    }
    found
}
