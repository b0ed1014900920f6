//! A function, cut into the parts that matter here, all of them the user's own tokens.
//!
//! The body is not parsed: new syntax in it must not break the attribute, and parsing it would be the
//! larger part of the compile time. A function's body is the last thing of it, and what stands before
//! `fn` is short, so tokens are enough.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use syn::{Error, Result};

/// A function with a body, for which a range of a thread can be emitted.
pub(crate) struct Function {
    pub(crate) name: Ident,
    /// Everything before the body.
    pub(crate) head: Vec<TokenTree>,
    /// `#![...]` at the front of the body, which must stay there.
    pub(crate) inner_attributes: Vec<TokenTree>,
    /// The rest of the body.
    pub(crate) statements: Vec<TokenTree>,
    /// The braces of the body.
    pub(crate) braces: Group,
}

impl Function {
    pub(crate) fn parse(item: TokenStream) -> Result<Function> {
        let mut head: Vec<TokenTree> = opened(item).into_iter().collect();
        let name = name(&head)?;
        let Some(braces) = head.pop().and_then(braces) else {
            let help = "`annotate` needs a function with a body: put it on the implementation";
            return Err(Error::new(name.span(), help));
        };
        let mut inner_attributes: Vec<TokenTree> = braces.stream().into_iter().collect();
        let statements = inner_attributes.split_off(inner_attributes_end(&inner_attributes));
        Ok(Function { name, head, inner_attributes, statements, braces })
    }
}

/// Without the invisible group that `macro_rules` puts around a whole `$item`.
fn opened(item: TokenStream) -> TokenStream {
    let mut trees = item.clone().into_iter();
    match (trees.next(), trees.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            opened(group.stream())
        }
        _ => item,
    }
}

/// The braces that `tree` is, also through the invisible group of a `$body:block`.
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

/// The name of the function that `item` starts, if a range can be emitted for it.
fn name(item: &[TokenTree]) -> Result<Ident> {
    let mut tokens = Flat::new(item);
    // The first word after the visibility: what the item is, for one that is no function.
    let mut kind = None;
    let mut refused = None;
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
                        Some(TokenTree::Ident(name)) => return refused.map_or(Ok(name), Err),
                        _ => return Err(not_a_function(span)),
                    },
                    "async" => refused = Some(Error::new(span, ASYNC)),
                    "const" => refused = Some(Error::new(span, CONST)),
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

const ASYNC: &str = "`annotate` on an `async fn` is not supported yet: a range belongs to one thread \
                     and must not live across an `.await`; annotate the functions that it calls, or \
                     use `nvtx::range` between awaits";
const CONST: &str = "`annotate` can't be used on a `const fn`: starting a range is not constant; \
                     remove `const`, or annotate the caller";

fn not_a_function(at: Span) -> Error {
    Error::new(at, "`annotate` works on functions and methods only")
}

/// The number of tokens at the front of a body that are inner attributes.
fn inner_attributes_end(body: &[TokenTree]) -> usize {
    let attribute = |trees: &[TokenTree]| {
        matches!(trees, [TokenTree::Punct(hash), TokenTree::Punct(bang), TokenTree::Group(group)]
            if hash.as_char() == '#' && bang.as_char() == '!' && group.delimiter() == Delimiter::Bracket)
    };
    3 * body.chunks(3).take_while(|trees| attribute(trees)).count()
}

/// Tokens without the invisible groups that `macro_rules` puts around what it pastes, such as `$vis`.
struct Flat {
    /// What is still to come, the next one last.
    rest: Vec<TokenTree>,
}

impl Flat {
    fn new(trees: &[TokenTree]) -> Flat {
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
