//! `#[gpu_test]`: a function that takes a `GpuTest` becomes a test.

use proc_macro2::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use quote::{quote, quote_spanned};
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitInt, Result};

use crate::args::{crate_path, equals, expanded, expression, once, options};
use crate::function::{Flat, Function, Kind, is_word};

const HELP: &str =
    "`gpu_test` takes `warm_up = N`, `repeats = N`, `profiler = ...` and `crate = path`";

#[derive(Default)]
struct Args {
    warm_up: Option<LitInt>,
    repeats: Option<LitInt>,
    /// An expression of type `Result<Profiler, Error>`.
    profiler: Option<TokenStream>,
    /// The path to `profiler_core`.
    krate: Option<TokenStream>,
}

/// Expands the whole attribute.
pub(crate) fn gpu_test(options: TokenStream, item: TokenStream) -> TokenStream {
    let args = parse.parse2(options);
    let expansion = args.and_then(|args| expand(&args, Function::parse(item.clone(), "gpu_test")?));
    expanded(expansion, item)
}

fn parse(input: ParseStream<'_>) -> Result<Args> {
    let mut args = Args::default();
    options(
        input,
        HELP,
        |_| Ok(()),
        |input, option| {
            match option.to_string().as_str() {
                "warm_up" => args.warm_up = Some(number(input, option, args.warm_up.is_some(), 0)?),
                "repeats" => args.repeats = Some(number(input, option, args.repeats.is_some(), 1)?),
                "profiler" => expression(input, option, &mut args.profiler)?,
                "crate" => {
                    let example = "gpu::profiler_core";
                    crate_path(input, option, &mut args.krate, "profiler_core", example)?;
                }
                _ => return Ok(false),
            }
            Ok(true)
        },
    )?;
    Ok(args)
}

fn number(input: ParseStream<'_>, option: &Ident, given: bool, least: u32) -> Result<LitInt> {
    once(option, given)?;
    equals(input, option, "5")?;
    let at = input.cursor();
    let help =
        || format!("option `{option}` is a whole number from {least} on, such as `{option} = 5`");
    let number: LitInt = input.parse().map_err(|_| Error::new(at.span(), help()))?;
    match number.base10_parse::<u32>() {
        Ok(value) if value >= least && matches!(number.suffix(), "" | "u32") => Ok(number),
        _ => Err(Error::new(number.span(), help())),
    }
}

fn expand(args: &Args, function: Function) -> Result<TokenStream> {
    let head: Vec<TokenTree> = Flat::new(&function.head).collect();
    if let Some(at) = function.constant {
        return Err(Error::new(at, "`gpu_test` can't be used on a `const fn`: remove `const`"));
    }
    if function.kind != Kind::Value {
        let at = head
            .iter()
            .find(|tree| is_word(tree, "async"))
            .map_or(function.name.span(), TokenTree::span);
        let help = "`gpu_test` needs a function that gives no future: run the future in its body";
        return Err(Error::new(at, help));
    }
    if let Some(at) = head.iter().find_map(should_panic) {
        let help = "a `gpu_test` that is skipped does not panic, and would fail where there is no GPU: test the \
                    error of `check` instead";
        return Err(Error::new(at, help));
    }
    // The name follows `fn`; the same word may occur in types.
    let after = head.iter().position(|tree| is_word(tree, "fn")).map_or(head.len(), |at| at + 2);
    let (before, rest) = head.split_at_checked(after).unwrap_or((&head, &[]));
    let [TokenTree::Group(parameters), rest @ ..] = rest else {
        let help = "`gpu_test` needs a function without generics: libtest calls it with none";
        return Err(Error::new(rest.first().map_or(function.name.span(), TokenTree::span), help));
    };
    if count(parameters.stream()) != 1 {
        let name = &function.name;
        let help = format!(
            "a `gpu_test` takes the test and nothing else: write `fn {name}(test: GpuTest)`"
        );
        return Err(Error::new(parameters.span(), help));
    }

    let krate = args.krate.clone().unwrap_or_else(|| quote!(::profiler_core));
    let begin = match &args.profiler {
        Some(profiler) => quote!(#krate::GpuTest::from_profiler(#profiler)),
        None => quote!(#krate::gpu_test()),
    };
    let warm_up = args.warm_up.as_ref().map(|runs| quote!(.warm_up(#runs)));
    let repeats = args.repeats.as_ref().map(|runs| quote!(.repeats(#runs)));
    let Function { name, inner_attributes, statements, braces, .. } = &function;
    let block = |content: TokenStream| {
        let mut block = Group::new(Delimiter::Brace, content);
        block.set_span(braces.span());
        block
    };
    // An inner function, so that parameter and body are unchanged.
    let body = block(quote!(#(#inner_attributes)* #(#statements)*));
    let inner = quote!(fn #name #parameters #(#rest)* #body);
    let outer = block(quote_spanned! { Span::mixed_site() =>
        #inner
        match #begin {
            ::core::option::Option::Some(__gpu_test) => #name(__gpu_test #warm_up #repeats),
            ::core::option::Option::None => #krate::testing::Skipped::skipped(),
        }
    });
    Ok(quote!(#[::core::prelude::v1::test] #(#before)* () #(#rest)* #outer))
}

/// The position of the word, if the group is a `should_panic` attribute.
fn should_panic(tree: &TokenTree) -> Option<Span> {
    let TokenTree::Group(group) = tree else {
        return None;
    };
    match group.stream().into_iter().next() {
        Some(TokenTree::Ident(word)) if word == "should_panic" => Some(word.span()),
        _ => None,
    }
}

/// The number of parameters, from the commas outside generics. An arrow's `>` closes nothing.
fn count(parameters: TokenStream) -> usize {
    let (mut depth, mut commas, mut before) = (0, 0, ' ');
    let trees: Vec<TokenTree> = parameters.into_iter().collect();
    for tree in &trees {
        let now = match tree {
            TokenTree::Punct(punct) => punct.as_char(),
            _ => ' ',
        };
        match now {
            '<' => depth += 1,
            '>' if before != '-' => depth -= 1,
            ',' if depth == 0 => commas += 1,
            _ => {}
        }
        before = now;
    }
    if trees.is_empty() { 0 } else { commas + usize::from(before != ',') }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parameters_are_counted_as_rust_does() {
        for (parameters, expected) in [
            ("", 0),
            ("test: GpuTest", 1),
            ("test: GpuTest,", 1),
            ("mut test: a::Test<A, B>", 1),
            ("f: fn(A, B) -> C, g: Vec<fn() -> D>", 2),
            ("(a, b): (A, B)", 1),
        ] {
            assert_eq!(count(parameters.parse().unwrap()), expected, "{parameters}");
        }
    }

    #[test]
    fn word_of_a_rule_may_occur_anywhere_in_the_name() {
        let item = "fn parse(test: GpuTest) -> Result<(), parse::Error> {}";
        let tokens = gpu_test(TokenStream::new(), item.parse().unwrap()).to_string();
        let head = "#[::core::prelude::v1::test] fn parse() -> Result<(), parse::Error>";
        let head = head.parse::<TokenStream>().unwrap().to_string();
        assert!(tokens.starts_with(&head), "{tokens}");
    }

    #[test]
    fn error_leaves_the_item_unchanged() {
        for (options, item) in [
            ("", "const fn f(t: T) {}"),
            ("", "struct S;"),
            ("", "fn f(t: T);"),
            ("", "fn f() {}"),
            ("", "fn f<T>(t: T) {}"),
            ("", "#[should_panic(expected = \"\")] fn f(t: T) {}"),
            ("", "async fn f(t: T) {}"),
            ("repeats = 0", "fn f(t: T) {}"),
            ("repeats", "fn f(t: T) {}"),
        ] {
            let tokens = gpu_test(options.parse().unwrap(), item.parse().unwrap()).to_string();
            let item = item.parse::<TokenStream>().unwrap().to_string();
            assert!(tokens.contains("compile_error") && tokens.ends_with(&item), "{tokens}");
        }
    }
}
