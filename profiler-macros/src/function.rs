//! A function, split into the parts that the attributes need, all of them the user's own tokens.
//!
//! The body is not parsed: new syntax in it must not break the attribute, and parsing would take
//! most of the compile time. A function's body is its last part and the tokens before `fn` are few,
//! so tokens are enough.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::{Error, Result};

/// A function with a body.
pub(crate) struct Function {
    pub(crate) name: Ident,
    pub(crate) kind: Kind,
    /// Its `const`, which no attribute of this crate supports.
    pub(crate) constant: Option<Span>,
    /// The tokens after `->`; empty without a return type.
    pub(crate) output: Vec<TokenTree>,
    /// Everything before the body.
    pub(crate) head: Vec<TokenTree>,
    /// `#![...]` at the front of the body, which must stay there.
    pub(crate) inner_attributes: Vec<TokenTree>,
    /// The rest of the body.
    pub(crate) statements: Vec<TokenTree>,
    /// The braces of the body.
    pub(crate) braces: Group,
}

/// The result of a call of the function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Its value, at the end of the body.
    Value,
    /// A future of its value, since the function is `async`.
    Async,
    /// The future that the body creates: the function returns `impl Future`.
    ImplFuture,
    /// The boxed and pinned future that the body creates, as `async_trait` makes of an `async fn`.
    BoxFuture,
}

impl Function {
    /// Parses an item. `attribute` is the attribute's name in errors.
    pub(crate) fn parse(item: TokenStream, attribute: &str) -> Result<Function> {
        let mut head: Vec<TokenTree> = opened(item).into_iter().collect();
        let Name { name, is_async, constant } = name(&head, attribute)?;
        let Some(braces) = head.pop().and_then(braces) else {
            let help =
                format!("`{attribute}` needs a function with a body: put it on the implementation");
            return Err(Error::new(name.span(), help));
        };
        let mut inner_attributes: Vec<TokenTree> = braces.stream().into_iter().collect();
        let statements = inner_attributes.split_off(inner_attributes_end(&inner_attributes));
        let output = output(&head);
        let kind = match is_async {
            true => Kind::Async,
            false if is_impl_future(&output) => Kind::ImplFuture,
            false if is_box_future(&output) => Kind::BoxFuture,
            false => Kind::Value,
        };
        Ok(Function { name, kind, constant, output, head, inner_attributes, statements, braces })
    }
}

/// Removes the invisible group that `macro_rules` puts around a whole `$item`.
fn opened(item: TokenStream) -> TokenStream {
    let mut trees = item.clone().into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            opened(group.stream())
        }
        _ => item,
    }
}

/// Returns `tree` as braces, even inside the invisible group of a `$body:block`.
fn braces(tree: TokenTree) -> Option<Group> {
    let TokenTree::Group(group) = tree else {
        return None;
    };
    match group.delimiter() {
        Delimiter::Brace => Some(group),
        Delimiter::None => {
            let mut trees = group.stream().into_iter();
            let only = trees.next()?;
            trees.next().is_none().then_some(only).and_then(braces)
        }
        Delimiter::Parenthesis | Delimiter::Bracket => None,
    }
}

/// Returns the tokens between `->` and `where` or the body, without invisible groups.
fn output(head: &[TokenTree]) -> Vec<TokenTree> {
    // `fn` and the name.
    let tokens: Vec<TokenTree> =
        Flat::new(head).skip_while(|token| !is_word(token, "fn")).skip(2).collect();
    // The parameters are the first parentheses outside the generics; an arrow's `>` closes nothing.
    let mut depth = 0;
    let mut after_dash = false;
    let mut parameters = None;
    for (i, token) in tokens.iter().enumerate() {
        match token {
            TokenTree::Punct(punct) if punct.as_char() == '<' => depth += 1,
            TokenTree::Punct(punct) if punct.as_char() == '>' && !after_dash => depth -= 1,
            TokenTree::Group(group)
                if group.delimiter() == Delimiter::Parenthesis && depth == 0 =>
            {
                parameters = Some(i);
                break;
            }
            _ => {}
        }
        after_dash = matches!(token, TokenTree::Punct(punct) if punct.as_char() == '-');
    }
    let rest = parameters.map_or(&[][..], |i| &tokens[i + 1..]);
    match rest {
        [TokenTree::Punct(dash), TokenTree::Punct(angle), rest @ ..]
            if dash.as_char() == '-' && angle.as_char() == '>' =>
        {
            rest.iter().take_while(|token| !is_word(token, "where")).cloned().collect()
        }
        _ => Vec::new(),
    }
}

/// True if a return type is written as `impl ... Future ...`, before any `<` of another name.
fn is_impl_future(output: &[TokenTree]) -> bool {
    output.first().is_some_and(|first| is_word(first, "impl")) && names_future(output)
}

/// True if a return type is written as `Pin<Box<dyn ... Future ...>>`, or by the names that crates
/// give this.
fn is_box_future(output: &[TokenTree]) -> bool {
    match generic(output) {
        Some((name, _)) if name == "BoxFuture" || name == "LocalBoxFuture" => {
            matches!(output.last(), Some(TokenTree::Punct(punct)) if punct.as_char() == '>')
        }
        Some((name, inside)) if name == "Pin" => match generic(inside) {
            Some((name, [first, inside @ ..])) if name == "Box" => {
                is_word(first, "dyn") && names_future(inside)
            }
            _ => false,
        },
        _ => false,
    }
}

/// Returns the last name of a path with generics, and the tokens after its `<`.
fn generic(mut tokens: &[TokenTree]) -> Option<(&Ident, &[TokenTree])> {
    let mut last = None;
    loop {
        match tokens {
            [TokenTree::Punct(angle), rest @ ..] if angle.as_char() == '<' => {
                return last.map(|name| (name, rest));
            }
            [TokenTree::Punct(colon), rest @ ..] if colon.as_char() == ':' => tokens = rest,
            [TokenTree::Ident(name), rest @ ..] => {
                last = Some(name);
                tokens = rest;
            }
            _ => return None,
        }
    }
}

/// True if there is a `Future` before the generics of any name.
fn names_future(tokens: &[TokenTree]) -> bool {
    tokens
        .iter()
        .take_while(|token| !matches!(token, TokenTree::Punct(punct) if punct.as_char() == '<'))
        .any(|token| is_word(token, "Future"))
}

/// True if the token is this word.
pub(crate) fn is_word(token: &TokenTree, text: &str) -> bool {
    matches!(token, TokenTree::Ident(word) if word == text)
}

struct Name {
    name: Ident,
    is_async: bool,
    constant: Option<Span>,
}

/// Returns the name of the function that `item` starts, and the tokens before it.
fn name(item: &[TokenTree], attribute: &str) -> Result<Name> {
    let not_a_function =
        |at| Error::new(at, format!("`{attribute}` works on functions and methods only"));
    let mut tokens = Flat::new(item);
    // The first word after the visibility: the kind of an item that is not a function.
    let mut kind = None;
    let mut constant = None;
    let mut is_async = false;
    while let Some(token) = tokens.next() {
        match &token {
            // An attribute: `#` and its brackets.
            TokenTree::Punct(punct) if punct.as_char() == '#' => {
                tokens.next();
            }
            // The `(crate)` of `pub(crate)`, and the `"C"` of `extern "C"`.
            TokenTree::Group(group) if group.delimiter() == Delimiter::Parenthesis => {}
            TokenTree::Literal(_) => {}
            TokenTree::Ident(word) => {
                let span = word.span();
                match word.to_string().as_str() {
                    "pub" => continue,
                    "fn" => match tokens.next() {
                        Some(TokenTree::Ident(name)) => {
                            return Ok(Name { name, is_async, constant });
                        }
                        _ => return Err(not_a_function(span)),
                    },
                    "async" => is_async = true,
                    "const" => constant = Some(span),
                    "default" | "unsafe" | "safe" | "extern" => {}
                    _ => return Err(not_a_function(kind.unwrap_or(span))),
                }
                kind.get_or_insert(span);
            }
            other => return Err(not_a_function(kind.unwrap_or(other.span()))),
        }
    }
    Err(not_a_function(kind.unwrap_or_else(Span::call_site)))
}

/// The number of tokens at the front of a body that are inner attributes.
fn inner_attributes_end(body: &[TokenTree]) -> usize {
    let attribute = |trees: &[TokenTree]| {
        matches!(trees, [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group)]
            if hash.as_char() == '#' && bang.as_char() == '!' && group.delimiter() == Delimiter::Bracket)
    };
    3 * body.chunks(3).take_while(|trees| attribute(trees)).count()
}

/// Tokens without the invisible groups that `macro_rules` puts around pasted fragments, such as
/// `$vis`.
pub(crate) struct Flat {
    /// The remaining tokens, the next one last.
    rest: Vec<TokenTree>,
}

impl Flat {
    pub(crate) fn new(trees: &[TokenTree]) -> Flat {
        Flat { rest: trees.iter().rev().cloned().collect() }
    }
}

impl Iterator for Flat {
    type Item = TokenTree;

    fn next(&mut self) -> Option<TokenTree> {
        loop {
            match self.rest.pop()? {
                TokenTree::Group(group) if group.delimiter() == Delimiter::None => {
                    let mut inside: Vec<TokenTree> = group.stream().into_iter().collect();
                    inside.reverse();
                    self.rest.append(&mut inside);
                }
                token => return Some(token),
            }
        }
    }
}
