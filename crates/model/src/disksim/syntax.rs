//! The syntax of DiskSim's parameter files (libparam): blocks of `name =
//! value`, lists, and files that are taken in with `source`.

use super::ImportError;

/// Maximum depth of nesting: more than any sound file has.
const DEPTH: usize = 32;

/// A value and the line it begins on.
#[derive(Clone, PartialEq, Debug)]
pub(super) struct Spanned<T> {
    pub(super) line: usize,
    pub(super) value: T,
}

/// The value behind a `=`.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Value {
    Number(f64),
    /// Words, joined by single spaces.
    Words(String),
    List(Vec<Spanned<Value>>),
    Block(Block),
    /// `source FILE`: the block is in another file.
    Source(String),
}

/// `type name { key = value, ... }`.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Block {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) entries: Vec<(String, Spanned<Value>)>,
}

/// A top-level item of a file.
#[derive(Clone, PartialEq, Debug)]
pub(super) enum Item {
    Block(Block),
    Source(String),
    /// `instantiate [ names ] as TYPE`.
    Instantiate {
        names: Vec<String>,
        kind: String,
    },
    /// `topology TYPE NAME [ ... ]`.
    Topology(Node),
}

/// A component and the components below it.
#[derive(Clone, PartialEq, Debug, Default)]
pub(super) struct Node {
    pub(super) kind: String,
    pub(super) name: String,
    pub(super) below: Vec<Node>,
}

#[derive(Clone, PartialEq, Debug)]
enum Token {
    Word(String),
    Mark(char),
}

/// The parser of a file.
struct Parser<'a> {
    tokens: Vec<Spanned<Token>>,
    at: usize,
    file: &'a str,
    /// Number of lines in the file, for an error at its end.
    lines: usize,
}

/// Parses a file.
pub(super) fn parse(text: &str, file: &str) -> Result<Vec<Item>, ImportError> {
    let mut parser =
        Parser { tokens: tokens(text), at: 0, file, lines: text.lines().count().max(1) };
    let mut items = Vec::new();
    while parser.at < parser.tokens.len() {
        items.push(parser.item()?);
    }
    Ok(items)
}

fn tokens(text: &str) -> Vec<Spanned<Token>> {
    let mut tokens = Vec::new();
    for (at, line) in text.lines().enumerate() {
        let number = at + 1;
        let line = line.split('#').next().unwrap_or_default();
        let mut rest = line;
        while let Some(mark) = rest.find(['{', '}', '[', ']', '=', ',']) {
            let (words, after) = rest.split_at(mark);
            push_words(&mut tokens, words, number);
            let mut chars = after.chars();
            if let Some(mark) = chars.next() {
                tokens.push(Spanned { line: number, value: Token::Mark(mark) });
            }
            rest = chars.as_str();
        }
        push_words(&mut tokens, rest, number);
    }
    tokens
}

fn push_words(tokens: &mut Vec<Spanned<Token>>, words: &str, line: usize) {
    let word = |word: &str| Spanned { line, value: Token::Word(word.into()) };
    tokens.extend(words.split_whitespace().map(word));
}

impl Parser<'_> {
    fn peek(&self) -> Option<&Token> {
        self.tokens.get(self.at).map(|token| &token.value)
    }

    fn line(&self) -> usize {
        self.tokens.get(self.at).map_or(self.lines, |token| token.line)
    }

    fn error(&self, key: &str, message: impl Into<String>) -> ImportError {
        ImportError::Invalid {
            file: self.file.into(),
            line: self.line(),
            key: key.into(),
            message: message.into(),
        }
    }

    fn skip(&mut self) {
        self.at += 1;
    }

    fn take(&mut self, mark: char) -> bool {
        let found = self.peek() == Some(&Token::Mark(mark));
        if found {
            self.skip();
        }
        found
    }

    fn expect(&mut self, mark: char, key: &str) -> Result<(), ImportError> {
        if self.take(mark) { Ok(()) } else { Err(self.error(key, format!("'{mark}' expected"))) }
    }

    fn word(&mut self) -> Option<String> {
        let Some(Token::Word(word)) = self.peek() else { return None };
        let word = word.clone();
        self.skip();
        Some(word)
    }

    fn words(&mut self) -> String {
        let mut words: Vec<String> = Vec::new();
        while let Some(word) = self.word() {
            words.push(word);
        }
        words.join(" ")
    }

    fn item(&mut self) -> Result<Item, ImportError> {
        let Some(word) = self.word() else { return Err(self.error("", "a block's type expected")) };
        match word.as_str() {
            "source" => self
                .word()
                .map(Item::Source)
                .ok_or_else(|| self.error("source", "a file's name expected")),
            "instantiate" => self.instantiate(),
            "topology" => {
                let kind = self.word().unwrap_or_default();
                Ok(Item::Topology(self.node(kind, DEPTH)?))
            }
            _ => {
                let name = self.word().unwrap_or_default();
                self.block(word, name, DEPTH).map(Item::Block)
            }
        }
    }

    fn instantiate(&mut self) -> Result<Item, ImportError> {
        self.expect('[', "instantiate")?;
        let mut names = Vec::new();
        while !self.take(']') {
            match self.word() {
                Some(name) => names.push(name),
                None if self.take(',') => {}
                None => return Err(self.error("instantiate", "a name expected")),
            }
        }
        let kind = self.words_after_as()?;
        Ok(Item::Instantiate { names, kind })
    }

    fn words_after_as(&mut self) -> Result<String, ImportError> {
        let word = self.word();
        match (word.as_deref(), self.word()) {
            (Some("as"), Some(kind)) => Ok(kind),
            _ => Err(self.error("instantiate", "'as' and a name expected")),
        }
    }

    fn node(&mut self, kind: String, depth: usize) -> Result<Node, ImportError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.error("topology", "nested too deep"));
        };
        let name = self.word().unwrap_or_default();
        self.expect('[', "topology")?;
        let mut below = Vec::new();
        while !self.take(']') {
            match self.word() {
                Some(kind) => below.push(self.node(kind, depth)?),
                None if self.take(',') => {}
                None => return Err(self.error("topology", "a component expected")),
            }
        }
        Ok(Node { kind, name, below })
    }

    fn block(&mut self, kind: String, name: String, depth: usize) -> Result<Block, ImportError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.error(&kind, "nested too deep"));
        };
        self.expect('{', &kind)?;
        let mut entries = Vec::new();
        while !self.take('}') {
            if self.take(',') {
                continue;
            }
            let line = self.line();
            let key = self.words();
            if key.is_empty() {
                return Err(self.error(&kind, "a parameter's name expected"));
            }
            self.expect('=', &key)?;
            let value = self.value(&key, depth)?;
            entries.push((key, Spanned { line, value }));
        }
        Ok(Block { kind, name, entries })
    }

    fn value(&mut self, key: &str, depth: usize) -> Result<Value, ImportError> {
        if self.take('[') {
            return self.list(key, depth);
        }
        let words = self.words();
        if self.peek() == Some(&Token::Mark('{')) {
            return self.block(words, String::new(), depth).map(Value::Block);
        }
        if let Some(file) = words.strip_prefix("source ") {
            return Ok(Value::Source(file.into()));
        }
        if words.is_empty() {
            return Err(self.error(key, "a value expected"));
        }
        Ok(words.parse().map_or(Value::Words(words), Value::Number))
    }

    fn list(&mut self, key: &str, depth: usize) -> Result<Value, ImportError> {
        let Some(depth) = depth.checked_sub(1) else {
            return Err(self.error(key, "nested too deep"));
        };
        let mut list = Vec::new();
        while !self.take(']') {
            if !self.take(',') {
                let line = self.line();
                let value = self.value(key, depth)?;
                list.push(Spanned { line, value });
            }
        }
        Ok(Value::List(list))
    }
}
