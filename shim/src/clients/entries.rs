//! The servers of a client's file: what each starts, and where that stands.

use std::collections::BTreeMap;

use distribution::{Digest, Secret};

use super::table::{ANY, Shape};
use super::tree::{List, Map, Member, Node};
use crate::show::one_line;

/// One server as it stands in a file.
#[derive(Clone, Debug)]
pub struct Entry<'n> {
    /// Its name there.
    pub name: String,
    /// What it stands beneath that has a name of its own: a project of the user's file.
    pub within: Option<String>,
    /// The map or the list that it stands in, with its place there.
    pub holder: Holder<'n>,
    /// What stands for it.
    pub value: &'n Node,
    /// Another entry has its name, so that it is not plain which of them the client takes.
    pub is_twice: bool,
}

/// What holds entries.
#[derive(Clone, Copy, Debug)]
pub enum Holder<'n> {
    /// By their names.
    Map(&'n Map, usize),
    /// One after another.
    List(&'n List, usize),
}

/// What a client starts for an entry.
#[derive(Clone, Debug)]
pub struct Start<'n> {
    /// Program and arguments, each a [`Node::Text`].
    pub words: Vec<(&'n str, &'n Node)>,
    /// The list of the arguments, or of all words.
    pub list: Option<&'n List>,
    /// Variables that the client sets, with their values.
    pub env: Vec<(String, Secret)>,
    /// A file with more of them.
    pub env_file: Option<String>,
    /// The directory that it starts in.
    pub directory: Option<String>,
}

impl Start<'_> {
    /// All that what smcp makes of it goes by: an entry of another outline is another one.
    pub fn outline(&self) -> Vec<String> {
        let words = self.words.iter().map(|(word, _)| format!("word {word}"));
        let names = self.env.iter().map(|(name, value)| format!("{name} {}", value.expose().is_empty()));
        let file = self.env_file.iter().map(|file| format!("file {file}"));
        words.chain(names).chain(file).chain(self.directory.iter().map(|from| format!("from {from}"))).collect()
    }
}

/// The entries of a file, in its order.
pub fn entries<'n>(root: &'n Node, shape: &Shape) -> Vec<Entry<'n>> {
    let mut found = Vec::new();
    for path in shape.at {
        walk(root, path, None, &mut |holder, within| match holder {
            Node::Map(map) => {
                for (at, Member { name, value, .. }) in map.members.iter().enumerate() {
                    let (name, within) = (name.clone(), within.clone());
                    found.push(Entry { name, within, holder: Holder::Map(map, at), value, is_twice: false });
                }
            }
            Node::List(list) => {
                for (at, value) in list.items.iter().enumerate() {
                    let name = value.map().and_then(|map| map.get("name")).and_then(Node::text);
                    let name = name.map_or_else(|| format!("#{}", at + 1), str::to_owned);
                    let (within, holder) = (within.clone(), Holder::List(list, at));
                    found.push(Entry { name, within, holder, value, is_twice: false });
                }
            }
            _ => {}
        });
    }
    found.sort_by_key(|entry| entry.value.span().start);
    let mut seen: BTreeMap<(String, Option<String>), usize> = BTreeMap::new();
    let key = |entry: &Entry<'_>| (entry.name.clone(), entry.within.clone());
    found.iter().for_each(|entry| *seen.entry(key(entry)).or_default() += 1);
    found.iter_mut().for_each(|entry| entry.is_twice = seen[&key(entry)] > 1);
    found
}

fn walk<'n>(node: &'n Node, path: &[&str], within: Option<String>, found: &mut dyn FnMut(&'n Node, Option<String>)) {
    let Some((first, rest)) = path.split_first() else { return found(node, within) };
    let Node::Map(map) = node else { return };
    for member in &map.members {
        if *first == ANY {
            walk(&member.value, rest, Some(member.name.clone()), found);
        } else if member.name == *first {
            walk(&member.value, rest, within.clone(), found);
        }
    }
}

impl Start<'_> {
    /// Of its words, each behind its length.
    pub fn digest(&self) -> Digest {
        Digest::of(self.words.iter().map(|(word, _)| format!("{} {word}\n", word.len())).collect::<String>())
    }
}

impl<'n> Entry<'n> {
    /// What stands for it in words, beside its file: `projects./work.NAME`.
    pub fn title(&self) -> String {
        match &self.within {
            Some(within) => one_line(&format!("{} ({within})", self.name)),
            None => one_line(&self.name),
        }
    }

    /// What the client starts.
    ///
    /// # Errors
    /// Why that is not plain, or it starts nothing: for people.
    pub fn start(&self, shape: &Shape) -> Result<Start<'n>, String> {
        if self.is_twice {
            return Err("its name stands twice".into());
        }
        let map = self.value.map().ok_or("it is no map")?;
        let names = [Some(shape.command), shape.args, Some(shape.env)];
        if let Some(name) = names.into_iter().flatten().find(|name| map.has_twice(name)) {
            return Err(format!("`{name}` stands twice"));
        }
        let Some(command) = map.get(shape.command) else {
            let remote = ["url", "httpUrl", "serverUrl", "uri"].iter().any(|name| map.get(name).is_some());
            return Err(if remote { REMOTE.into() } else { format!("it has no `{}`", shape.command) });
        };
        let texts = |list: &'n List, name: &str| -> Result<Vec<(&'n str, &'n Node)>, String> {
            let all = list.items.iter().map(|item| item.text().map(|text| (text, item)));
            all.collect::<Option<Vec<_>>>().ok_or_else(|| format!("`{name}` holds something else than texts"))
        };
        let (words, list) = match shape.args {
            None => {
                let list = command.list().ok_or_else(|| format!("`{}` is no list", shape.command))?;
                (texts(list, shape.command)?, Some(list))
            }
            Some(name) => {
                let program = command.text().ok_or_else(|| format!("`{}` is no plain text", shape.command))?;
                let list = map.get(name).map(|args| args.list().ok_or_else(|| format!("`{name}` is no list")));
                let list = list.transpose()?;
                let args = list.map(|list| texts(list, name)).transpose()?.unwrap_or_default();
                ([vec![(program, command)], args].concat(), list)
            }
        };
        if words.is_empty() {
            return Err(format!("`{}` is empty", shape.command));
        }
        let variables = match map.get(shape.env) {
            None => &[][..],
            Some(Node::Map(variables)) => &variables.members[..],
            Some(_) => return Err(format!("`{}` is no map", shape.env)),
        };
        let variable = |member: &Member| (member.name.clone(), Secret::new(member.value.text().unwrap_or_default()));
        let text = |name: &str| map.get(name).and_then(Node::text).map(str::to_owned);
        Ok(Start {
            words,
            list,
            env: variables.iter().map(variable).collect(),
            env_file: text("envFile"),
            directory: text("cwd"),
        })
    }
}

/// Why an entry starts nothing here.
const REMOTE: &str = "it is a remote server: nothing of it runs on this machine";
