//! The options between the attribute's parentheses.

use proc_macro2::{Ident, TokenStream};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::{Error, LitStr, Result, Token};

const HELP: &str = "`annotate` takes `name = \"...\"` and `crate = path`";

/// What the user asked for.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<LitStr>,
    /// The path to `nvtx`.
    pub(crate) krate: Option<TokenStream>,
}

impl Args {
    pub(crate) fn parse(options: TokenStream) -> Result<Args> {
        parse.parse2(options)
    }
}

fn parse(input: ParseStream<'_>) -> Result<Args> {
    let mut args = Args::default();
    while !input.is_empty() {
        if input.peek(LitStr) {
            let name: LitStr = input.parse()?;
            let help = format!("to name the range, write `name = {}`", name.token());
            return Err(Error::new(name.span(), help));
        }
        let Ok(option) = input.call(Ident::parse_any) else {
            return Err(input.error(format!("expected an option: {HELP}")));
        };
        match option.to_string().as_str() {
            "name" => {
                once(&option, args.name.is_some())?;
                equals(input, &option, "\"...\"")?;
                args.name = Some(name(input)?);
            }
            "crate" => {
                once(&option, args.krate.is_some())?;
                equals(input, &option, "path")?;
                args.krate = Some(path(input)?);
            }
            other => {
                let help = format!("unknown option `{other}`: {HELP}");
                return Err(Error::new(option.span(), help));
            }
        }
        if !input.is_empty() && input.parse::<Token![,]>().is_err() {
            return Err(input.error("expected `,` between options"));
        }
    }
    Ok(args)
}

fn once(option: &Ident, given: bool) -> Result<()> {
    if given {
        let help = format!("option `{option}` is given twice: remove one");
        return Err(Error::new(option.span(), help));
    }
    Ok(())
}

fn equals(input: ParseStream<'_>, option: &Ident, value: &str) -> Result<()> {
    if input.parse::<Token![=]>().is_err() || input.is_empty() {
        let help = format!("option `{option}` needs a value: write `{option} = {value}`");
        return Err(Error::new(option.span(), help));
    }
    Ok(())
}

fn name(input: ParseStream<'_>) -> Result<LitStr> {
    let at = input.cursor();
    let name: LitStr = input.parse().map_err(|_| {
        let help = "the name of a range is a string literal; for one made at run time, call \
                    `nvtx::range(name)` in the body";
        Error::new(at.span(), help)
    })?;
    if name.suffix().is_empty() {
        Ok(name)
    } else {
        Err(Error::new(name.span(), "a name takes no suffix: remove it"))
    }
}

/// A path without generics. `syn` has one only with its features for whole syntax trees.
fn path(input: ParseStream<'_>) -> Result<TokenStream> {
    let at = input.cursor();
    let wrong = |_| Error::new(at.span(), "expected a path to `nvtx`, such as `crate = gpu::nvtx`");
    let mut path = TokenStream::new();
    if input.peek(Token![::]) {
        input.parse::<Token![::]>()?.to_tokens(&mut path);
    }
    loop {
        input.call(Ident::parse_any).map_err(wrong)?.to_tokens(&mut path);
        if !input.peek(Token![::]) {
            return Ok(quote!(#path));
        }
        input.parse::<Token![::]>()?.to_tokens(&mut path);
    }
}
