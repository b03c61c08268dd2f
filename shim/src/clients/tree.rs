//! What stands in a client's configuration file, and where: the same for JSON, TOML and YAML. Bytes are changed between what stays,
//! so nothing is ever written from this alone.

use std::ops::Range;

/// Bytes of the text from one to before another.
pub type Span = Range<usize>;

/// A value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Node {
    /// A text.
    Text {
        /// What it says.
        text: String,
        /// With its quotes.
        span: Span,
    },
    /// A list.
    List(List),
    /// A map.
    Map(Map),
    /// Whatever else: a number, a truth, nothing, a reference to another value.
    Other(Span),
}

/// A list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Its values.
    pub items: Vec<Node>,
    /// With its brackets.
    pub span: Span,
    /// Whether it has no brackets: YAML's items with dashes.
    pub is_block: bool,
}

/// A map, with its members in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Map {
    /// Its members. A name may stand twice in JSON.
    pub members: Vec<Member>,
    /// With its braces; of a table of TOML with a header that alone.
    pub span: Span,
    /// Whether it has no braces: lines of YAML, a table of TOML.
    pub is_block: bool,
}

/// A name and its value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The name.
    pub name: String,
    /// With its quotes.
    pub key: Span,
    /// The value.
    pub value: Node,
}

impl Node {
    /// Where it stands.
    pub fn span(&self) -> &Span {
        match self {
            Node::Text { span, .. } | Node::Other(span) => span,
            Node::List(list) => &list.span,
            Node::Map(map) => &map.span,
        }
    }

    /// What it says, of a text.
    pub fn text(&self) -> Option<&str> {
        match self {
            Node::Text { text, .. } => Some(text),
            _ => None,
        }
    }

    /// The map that it is.
    pub fn map(&self) -> Option<&Map> {
        match self {
            Node::Map(map) => Some(map),
            _ => None,
        }
    }

    /// The list that it is.
    pub fn list(&self) -> Option<&List> {
        match self {
            Node::List(list) => Some(list),
            _ => None,
        }
    }

    /// Where every value stands that holds no other: what may be somebody's secret.
    pub fn leaves(&self) -> Vec<Span> {
        match self {
            Node::Text { span, .. } | Node::Other(span) => vec![span.clone()],
            Node::List(list) => list.items.iter().flat_map(Node::leaves).collect(),
            Node::Map(map) => map.members.iter().flat_map(|member| member.value.leaves()).collect(),
        }
    }

    /// Whether it says the same as another of another text, wherever it stands there.
    pub fn says_the_same(&self, own: &str, other: &Node, others: &str) -> bool {
        match (self, other) {
            (Node::Text { text: one, .. }, Node::Text { text: two, .. }) => one == two,
            (Node::Other(one), Node::Other(two)) => own.get(one.clone()) == others.get(two.clone()),
            (Node::List(one), Node::List(two)) => {
                one.items.len() == two.items.len()
                    && one.items.iter().zip(&two.items).all(|(one, two)| one.says_the_same(own, two, others))
            }
            (Node::Map(one), Node::Map(two)) => {
                let same = |(one, two): (&Member, &Member)| {
                    one.name == two.name && one.value.says_the_same(own, &two.value, others)
                };
                one.members.len() == two.members.len() && one.members.iter().zip(&two.members).all(same)
            }
            _ => false,
        }
    }
}

impl Map {
    /// The value of a name; none where it stands twice, since clients differ in which of the two they take.
    pub fn get(&self, name: &str) -> Option<&Node> {
        let mut found = self.members.iter().filter(|member| member.name == name);
        let first = found.next()?;
        found.next().is_none().then_some(&first.value)
    }

    /// Whether a name stands twice.
    pub fn has_twice(&self, name: &str) -> bool {
        self.members.iter().filter(|member| member.name == name).count() > 1
    }
}
