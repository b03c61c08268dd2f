//! What a server offers, held against what was accepted of it or certified: page by page, as its lists are answered.

use std::collections::{BTreeMap, BTreeSet};

use distribution::Digest;

use super::json::Span;
use super::lists::{Change, Item, Kind, List, NAME, plain};
use super::rules::listed;
use super::{MOST_HELD, object, text};

/// What lists are held to, and what becomes of one that differs.
#[derive(Clone, Debug, Default)]
pub struct Pins {
    /// What becomes of what differs.
    pub manner: Manner,
    /// What was accepted, of the kinds of which something was.
    pub accepted: BTreeMap<Kind, Accepted>,
    /// The digest of the tools, where they were certified: then these count and no others.
    pub certified: Option<Digest>,
    /// For people and clients, of plain characters: which package, who demands it, and what to do next.
    pub words: Words,
}

/// What becomes of a list that differs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Manner {
    /// A person is told once, and it is accepted by that; the client gets what the server says. Where nobody states any:
    /// servers list more as a session goes on, and other things to other clients.
    #[default]
    Once,
    /// A person and the client are told, until it is accepted.
    Warn,
    /// It does not reach the client.
    Block,
}

/// A list that was accepted.
#[derive(Clone, Debug)]
pub struct Accepted {
    /// What it has.
    pub list: List,
    /// The version that it is of, where that is another than the one that runs.
    pub other_version: Option<String>,
}

/// What errors are made of.
#[derive(Clone, Debug, Default)]
pub struct Words {
    /// The package.
    pub package: String,
    /// `policy.tools.pin is block (FILE:LINE)`.
    pub demand: String,
}

/// What was found out, for whoever keeps it and tells people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Found {
    /// A whole list that is as accepted by an older version, or the first of its kind: it is accepted from now on.
    Accepted(Kind, List),
    /// More than was accepted before: it is accepted by being told, what is new of it.
    More(Kind, List, Vec<Change>),
    /// A list differs.
    Changed {
        /// How.
        changes: Vec<Change>,
        /// Which.
        kind: Kind,
        /// What was seen of it.
        seen: List,
        /// That is all of it.
        is_whole: bool,
    },
}

/// The state of the lists in a session.
#[derive(Debug)]
pub struct Watch {
    pins: Pins,
    /// Lists that come in pages.
    pages: BTreeMap<Kind, Pages>,
    /// What differs, by name; without one it is all of a kind.
    withheld: BTreeSet<(Kind, Option<String>)>,
    /// What was told of each kind last.
    told: BTreeMap<Kind, Vec<Change>>,
    /// The kinds that this run is the first to list.
    first: BTreeSet<Kind>,
    found: Vec<Found>,
}

/// What came of a list so far.
#[derive(Debug, Default)]
struct Pages {
    list: List,
    bytes: usize,
    /// The cursor of the page that is next.
    next: String,
}

/// What a page of a list is, to the client.
#[derive(Debug, PartialEq, Eq)]
pub enum Page {
    /// As accepted, or the first that there is.
    Passes,
    /// It differs, and passes; this is new to the client.
    Told(String),
    /// It does not pass; why, for the client.
    Withheld(String),
}

impl Watch {
    /// At the beginning of a session.
    pub fn new(mut pins: Pins) -> Watch {
        // What was certified is all that counts; where it is what was accepted, each page can be judged by that.
        if let Some(certified) = &pins.certified {
            let same = |accepted: &Accepted| accepted.list.digest() == *certified;
            if !pins.accepted.get(&Kind::Tools).is_some_and(same) {
                pins.accepted.remove(&Kind::Tools);
            }
        }
        let (pages, withheld, told) = (BTreeMap::new(), BTreeSet::new(), BTreeMap::new());
        Watch { pins, pages, withheld, told, first: BTreeSet::new(), found: Vec::new() }
    }

    /// Whether what differs is kept from the client.
    pub fn blocks(&self) -> bool {
        self.pins.manner == Manner::Block
    }

    /// What was found out since this was asked last.
    pub fn take(&mut self) -> Vec<Found> {
        std::mem::take(&mut self.found)
    }

    /// Judges the answer to a request for a list, or for the page of it at a cursor. What `permits` does not let through
    /// reaches no client, and may be anything.
    pub fn page(
        &mut self,
        kind: Kind,
        cursor: Option<&str>,
        line: &[u8],
        results: &[Span],
        permits: impl Fn(&str) -> bool,
    ) -> Page {
        let read = read(kind, line, results);
        let (mut list, mut changes) = (List::default(), Vec::new());
        let unreadable = |why: String| Change::Unreadable { kind, why };
        for item in read.items {
            let added = item.map(|item| (item.name.clone(), list.add(item)));
            match added {
                Ok((name, Err(why))) if permits(&name) => changes.push(unreadable(why)),
                Ok(_) => {}
                Err(why) => changes.push(unreadable(why)),
            }
        }
        let is_readable = changes.is_empty();
        let pages = self.pages.remove(&kind).filter(|pages| cursor == Some(&pages.next));
        let is_whole = cursor.is_none() || pages.is_some();
        let Pages { list: before, bytes, .. } = pages.unwrap_or_default();
        let (mut all, bytes) = (before, bytes + line.len());
        for (name, value) in list.items() {
            let item = Item { name: name.to_owned(), value: value.clone() };
            if let Err(why) = all.add(item)
                && permits(name)
            {
                changes.push(unreadable(why));
            }
        }
        let is_last = read.next.is_none();
        match read.next {
            Some(next) if is_whole && is_readable && bytes <= MOST_HELD => {
                self.pages.insert(kind, Pages { list: all.clone(), bytes, next });
            }
            _ => {}
        }
        let is_whole = is_whole && is_last && is_readable;
        changes.extend(self.differences(kind, &list, &all, is_whole, is_last));
        changes.retain(|change| change.name().is_none_or(&permits));
        self.withhold(kind, &list, &changes);
        self.settle(kind, all, is_whole, changes)
    }

    /// Takes it that an answer which may be a list was too large to be read.
    pub fn too_large(&mut self, kind: Kind) {
        let changes = vec![Change::Unreadable { kind, why: "the list is too large to be read".into() }];
        self.pages.remove(&kind);
        self.settle(kind, List::default(), false, changes);
    }

    /// How a page, and where it is the last one all of them, differ from what was accepted or certified.
    fn differences(&self, kind: Kind, page: &List, all: &List, is_whole: bool, is_last: bool) -> Vec<Change> {
        let certified = self.pins.certified.as_ref().filter(|_| kind == Kind::Tools);
        match (self.pins.accepted.get(&kind), certified) {
            (Some(accepted), _) => {
                let mut changes = accepted.list.changes(kind, page, false);
                // A version that offers less is no other than what was accepted.
                if is_whole && accepted.other_version.is_none() {
                    let of_all = accepted.list.changes(kind, all, true);
                    changes.extend(of_all.into_iter().filter(|change| !change.says_more()));
                }
                changes
            }
            (None, Some(certified)) if is_whole => {
                let is = all.digest();
                if is == *certified {
                    return Vec::new();
                }
                vec![Change::NotCertified { kind, is, certified: certified.clone() }]
            }
            (None, Some(_)) if self.blocks() && !is_last => {
                let why = "a certified list can be judged as a whole alone, and this one comes in pages; `smcp scan` reads all of them";
                vec![Change::Unreadable { kind, why: why.into() }]
            }
            (None, _) => Vec::new(),
        }
    }

    fn withhold(&mut self, kind: Kind, page: &List, changes: &[Change]) {
        self.withheld.remove(&(kind, None));
        for (name, _) in page.items() {
            self.withheld.remove(&(kind, Some(name.to_owned())));
        }
        let new = changes.iter().filter(|change| change.says_more());
        self.withheld.extend(new.map(|change| (kind, change.name().map(str::to_owned))));
    }

    /// Says what becomes of a page, and what is found out by it.
    fn settle(&mut self, kind: Kind, all: List, is_whole: bool, mut changes: Vec<Change>) -> Page {
        let is_once = self.pins.manner == Manner::Once && (self.pins.certified.is_none() || kind != Kind::Tools);
        if is_once {
            changes.retain(Change::says_more);
        }
        let says_more = changes.iter().any(Change::says_more);
        if is_once && says_more && !changes.iter().any(Change::is_unreadable) {
            self.take_in(kind, all, changes);
            return Page::Passes;
        }
        let certified = self.pins.certified.as_ref().filter(|_| kind == Kind::Tools);
        if is_whole && !says_more && certified.is_none_or(|certified| all.digest() == *certified) {
            let is_known = self.pins.accepted.get(&kind).is_some_and(|accepted| accepted.other_version.is_none());
            if !is_known {
                if self.pins.accepted.insert(kind, Accepted { list: all.clone(), other_version: None }).is_none() {
                    self.first.insert(kind);
                }
                self.found.push(Found::Accepted(kind, all.clone()));
            }
        }
        if changes.is_empty() {
            self.told.remove(&kind);
            return Page::Passes;
        }
        let brief = self.brief(kind, &changes);
        let is_new = self.told.insert(kind, changes.clone()).is_none_or(|told| told != changes);
        if is_new {
            self.found.push(Found::Changed { changes, kind, seen: all, is_whole });
        }
        match (says_more && self.blocks(), is_new && !is_once) {
            (true, _) => Page::Withheld(brief),
            (false, true) => Page::Told(brief),
            (false, false) => Page::Passes,
        }
    }

    /// Accepts more than was accepted before. What the first run lists later is part of what it lists, and nothing to tell.
    fn take_in(&mut self, kind: Kind, page: List, changes: Vec<Change>) {
        let Some(accepted) = self.pins.accepted.get_mut(&kind) else { return };
        let list = std::mem::take(&mut accepted.list).overlaid(page);
        *accepted = Accepted { list: list.clone(), other_version: None };
        let told = if self.first.contains(&kind) { Vec::new() } else { changes };
        self.found.push(Found::More(kind, list, told));
    }

    /// Why a server may not have a request for something by its name; none where it may.
    pub fn refuses(&self, kind: Kind, name: &str) -> Option<String> {
        let (one, all) = kind.words();
        let is_withheld = |name: Option<&str>| self.withheld.contains(&(kind, name.map(str::to_owned)));
        let accepted = self.pins.accepted.get(&kind).filter(|_| !kind.comes_and_goes());
        let what = if is_withheld(None) {
            format!("the {all} of {} are not those that were {}", self.pins.words.package, self.past())
        } else if is_withheld(Some(name)) || accepted.is_some_and(|accepted| accepted.list.get(name).is_none()) {
            format!("the {one} {} of {} is not as it was accepted, or new", plain(name, NAME), self.pins.words.package)
        } else {
            return None;
        };
        let Words { demand, .. } = &self.pins.words;
        Some(format!("{what} ({demand}); nothing was passed to the server; {}", self.next_step()))
    }

    fn past(&self) -> &'static str {
        if self.pins.certified.is_some() { "certified" } else { "accepted" }
    }

    /// What to do about what differs.
    fn next_step(&self) -> String {
        match self.pins.certified {
            Some(_) => "its certifier can say whether these are good".into(),
            None => format!("once you have read what changed: smcp accept {}", self.pins.words.package),
        }
    }

    /// For clients: names alone.
    fn brief(&self, kind: Kind, changes: &[Change]) -> String {
        const MOST: usize = 5;
        let mut briefs: Vec<String> = changes.iter().map(Change::brief).collect();
        briefs.dedup();
        let more = briefs.len().saturating_sub(MOST);
        briefs.truncate(MOST);
        let more = if more > 0 { format!("; and {more} more") } else { String::new() };
        let Words { package, demand } = &self.pins.words;
        let of_version = self.pins.accepted.get(&kind).and_then(|accepted| accepted.other_version.as_ref());
        let of_version = of_version.map_or(String::new(), |version| format!(" of version {}", plain(version, NAME)));
        format!(
            "the {} of {package} are not those that were {}{of_version}: {}{more} ({demand}); {}",
            kind.words().1,
            self.past(),
            briefs.join("; "),
            if changes.iter().any(Change::is_unreadable) {
                "its publisher can correct that".into()
            } else {
                self.next_step()
            }
        )
    }
}

/// What an answer says.
pub struct Read {
    /// Its items, or why one cannot be compared.
    pub items: Vec<Result<Item, String>>,
    /// The cursor of the page after it.
    pub next: Option<String>,
}

/// Whichever of equal members a client takes: the items of each count, and the list ends where the last cursor says so.
pub fn read(kind: Kind, line: &[u8], results: &[Span]) -> Read {
    let places = listed(line, results, kind.member()).into_iter().flat_map(|(_, all)| all);
    let places: Vec<Span> = places.collect();
    let result = results.last().and_then(|at| object(line, at));
    let next = result.and_then(|result| result.last(line, "nextCursor")).and_then(|at| text(line, &at));
    Read { items: Item::all(kind, line, &places), next }
}
