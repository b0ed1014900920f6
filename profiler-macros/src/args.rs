//! The options between the attribute's parentheses.

use proc_macro2::{Delimiter, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, quote};
use syn::ext::IdentExt;
use syn::parse::{Parse, ParseStream, Parser};
use syn::{Error, LitBool, LitStr, Result, Token, parenthesized};

const HELP: &str = "`annotate` takes `name = \"...\"`, `qualified`, `domain = PATH`, `color = ...`, \
                    `category = ...`, `payload = ...`, `flops = ...`, `bytes = ...`, `dtype = ...`, \
                    `pipe = ...`, `work = ...`, `fields(...)`, `lifetime = false`, `polls = false` \
                    and `crate = path`";

/// The parsed options.
#[derive(Default)]
pub(crate) struct Args {
    pub(crate) name: Option<LitStr>,
    /// Set if the module's path precedes the name.
    pub(crate) qualified: Option<Span>,
    /// The path to a static domain.
    pub(crate) domain: Option<TokenStream>,
    pub(crate) color: Option<TokenStream>,
    pub(crate) category: Option<TokenStream>,
    pub(crate) payload: Option<TokenStream>,
    pub(crate) fields: Vec<Field>,
    /// The declared work, as a whole and by quantity.
    pub(crate) work: Option<TokenStream>,
    pub(crate) flops: Option<TokenStream>,
    pub(crate) bytes: Option<TokenStream>,
    pub(crate) dtype: Option<TokenStream>,
    pub(crate) pipe: Option<TokenStream>,
    /// For a future: true if its life is a process range, and true if each poll is a thread range.
    pub(crate) lifetime: Option<LitBool>,
    pub(crate) polls: Option<LitBool>,
    /// The path to `nvtx`.
    pub(crate) krate: Option<TokenStream>,
}

/// One of `fields(n, flops = 2.0 * n => "flop")`.
pub(crate) struct Field {
    pub(crate) name: Ident,
    pub(crate) value: TokenStream,
    pub(crate) unit: Option<LitStr>,
}

impl Args {
    pub(crate) fn parse(options: TokenStream) -> Result<Args> {
        parse.parse2(options)
    }

    /// True if an event has more than its name and domain.
    pub(crate) fn has_details(&self) -> bool {
        !self.details().is_empty()
    }

    /// The options that give an event more than its name and domain, by their names in errors.
    pub(crate) fn details(&self) -> Vec<String> {
        let Args { color, category, payload, fields, .. } = self;
        let own = [
            ("color", color.is_some()),
            ("category", category.is_some()),
            ("payload", payload.is_some()),
            ("fields", !fields.is_empty()),
        ];
        let work = self.work().map(|(option, value)| (option, value.is_some()));
        let given = own.into_iter().chain(work).filter(|(_, given)| *given);
        given.map(|(option, _)| format!("`{option}`")).collect()
    }

    /// The declared work, by the method of `Event`.
    pub(crate) fn work(&self) -> [(&'static str, &Option<TokenStream>); 5] {
        let Args { work, flops, bytes, dtype, pipe, .. } = self;
        [("work", work), ("flops", flops), ("bytes", bytes), ("dtype", dtype), ("pipe", pipe)]
    }
}

fn parse(input: ParseStream<'_>) -> Result<Args> {
    let mut args = Args::default();
    options(input, HELP, refuse_literal, |input, option| {
        match option.to_string().as_str() {
            "name" => {
                once(option, args.name.is_some())?;
                equals(input, option, "\"...\"")?;
                args.name = Some(name(input)?);
            }
            "qualified" => {
                once(option, args.qualified.is_some())?;
                args.qualified = Some(option.span());
            }
            "domain" => {
                once(option, args.domain.is_some())?;
                equals(input, option, "PATH")?;
                args.domain = Some(domain(input)?);
            }
            "color" => expression(input, option, &mut args.color)?,
            "category" => expression(input, option, &mut args.category)?,
            "payload" => expression(input, option, &mut args.payload)?,
            "work" => expression(input, option, &mut args.work)?,
            "flops" => expression(input, option, &mut args.flops)?,
            "bytes" => expression(input, option, &mut args.bytes)?,
            "dtype" => expression(input, option, &mut args.dtype)?,
            "pipe" => expression(input, option, &mut args.pipe)?,
            "fields" => {
                once(option, !args.fields.is_empty())?;
                args.fields = fields(input, option)?;
            }
            "lifetime" => flag(input, option, &mut args.lifetime)?,
            "polls" => flag(input, option, &mut args.polls)?,
            "crate" => crate_path(input, option, &mut args.krate, "nvtx", "gpu::nvtx")?,
            _ => return Ok(false),
        }
        Ok(true)
    })?;
    Ok(args)
}

/// Refuses a name without `name =`.
fn refuse_literal(input: ParseStream<'_>) -> Result<()> {
    if !input.peek(LitStr) {
        return Ok(());
    }
    let name: LitStr = input.parse()?;
    let help = format!("to name the range, write `name = {}`", name.token());
    Err(Error::new(name.span(), help))
}

/// Parses options with commas between them. `check` runs before each; `parse` returns false for an
/// unknown option.
pub(crate) fn options(
    input: ParseStream<'_>,
    help: &str,
    check: fn(ParseStream<'_>) -> Result<()>,
    mut parse: impl FnMut(ParseStream<'_>, &Ident) -> Result<bool>,
) -> Result<()> {
    while !input.is_empty() {
        check(input)?;
        let Ok(option) = input.call(Ident::parse_any) else {
            return Err(input.error(format!("expected an option: {help}")));
        };
        if !parse(input, &option)? {
            let help = format!("unknown option `{option}`: {help}");
            return Err(Error::new(option.span(), help));
        }
        if !input.is_empty() && input.parse::<Token![,]>().is_err() {
            return Err(input.error("expected `,` between options"));
        }
    }
    Ok(())
}

/// Parses `= path`, the path to a crate.
pub(crate) fn crate_path(
    input: ParseStream<'_>,
    option: &Ident,
    value: &mut Option<TokenStream>,
    name: &str,
    example: &str,
) -> Result<()> {
    once(option, value.is_some())?;
    equals(input, option, "path")?;
    let help = format!("expected a path to `{name}`, such as `crate = {example}`");
    *value = Some(path(input, &help)?);
    Ok(())
}

/// Returns the expansion. After an error the item is unchanged, so that the error is the only one.
pub(crate) fn expanded(expansion: Result<TokenStream>, item: TokenStream) -> TokenStream {
    expansion.unwrap_or_else(|error| {
        let mut tokens = error.to_compile_error();
        tokens.extend(item);
        tokens
    })
}

pub(crate) fn once(option: &Ident, given: bool) -> Result<()> {
    if given {
        let help = format!("option `{option}` is given twice: remove one");
        return Err(Error::new(option.span(), help));
    }
    Ok(())
}

pub(crate) fn equals(input: ParseStream<'_>, option: &Ident, value: &str) -> Result<()> {
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
    unsuffixed(name)
}

fn unsuffixed(text: LitStr) -> Result<LitStr> {
    if text.suffix().is_empty() {
        Ok(text)
    } else {
        Err(Error::new(text.span(), "a string takes no suffix here: remove it"))
    }
}

fn domain(input: ParseStream<'_>) -> Result<TokenStream> {
    if input.peek(LitStr) {
        let help = "a domain is a static, so that all its ranges share it: write `static GPU: \
                    nvtx::Domain = nvtx::Domain::new(\"...\");` and `domain = GPU`";
        return Err(input.error(help));
    }
    path(input, "expected the path of a static `nvtx::Domain`, such as `domain = crate::GPU`")
}

fn flag(input: ParseStream<'_>, option: &Ident, value: &mut Option<LitBool>) -> Result<()> {
    once(option, value.is_some())?;
    equals(input, option, "false")?;
    let help = format!("option `{option}` is `true` or `false`");
    *value = Some(input.parse().map_err(|error: Error| Error::new(error.span(), help))?);
    Ok(())
}

pub(crate) fn expression(
    input: ParseStream<'_>,
    option: &Ident,
    value: &mut Option<TokenStream>,
) -> Result<()> {
    once(option, value.is_some())?;
    equals(input, option, "...")?;
    let tokens = tokens_until(input, |input| input.peek(Token![,]))?;
    if tokens.is_empty() {
        return Err(input.error(format!("option `{option}` needs a value before the `,`")));
    }
    *value = Some(tokens);
    Ok(())
}

/// Returns the tokens before the first for which `ends` is true. Expressions are not parsed, which
/// would need Rust's full syntax. So a comma outside brackets ends one, even in `f::<A, B>()`,
/// which needs parentheses.
fn tokens_until(
    input: ParseStream<'_>,
    ends: impl Fn(ParseStream<'_>) -> bool,
) -> Result<TokenStream> {
    let mut tokens = TokenStream::new();
    while !input.is_empty() && !ends(input) {
        input.parse::<TokenTree>()?.to_tokens(&mut tokens);
    }
    Ok(tokens)
}

fn fields(input: ParseStream<'_>, option: &Ident) -> Result<Vec<Field>> {
    if !matches!(input.cursor().token_tree(), Some((TokenTree::Group(group), _)) if group.delimiter() == Delimiter::Parenthesis)
    {
        let help =
            "option `fields` takes a list: write `fields(n, flops = 2.0 * n as f64 => \"flop\")`";
        return Err(Error::new(option.span(), help));
    }
    let list;
    parenthesized!(list in input);
    let fields: Vec<Field> = list.parse_terminated(Field::parse, Token![,])?.into_iter().collect();
    if fields.is_empty() {
        return Err(Error::new(option.span(), "option `fields` names no field: remove it"));
    }
    Ok(fields)
}

impl Parse for Field {
    fn parse(input: ParseStream<'_>) -> Result<Field> {
        let at = input.cursor();
        let name: Ident = input.parse().map_err(|_| {
            Error::new(
                at.span(),
                "expected a field: `argument`, or `name = value`, or `name = value => \"unit\"`",
            )
        })?;
        let mut value = quote!(#name);
        if input.peek(Token![=]) && !input.peek(Token![=>]) {
            input.parse::<Token![=]>()?;
            value = tokens_until(input, |input| input.peek(Token![,]) || input.peek(Token![=>]))?;
            if value.is_empty() {
                return Err(Error::new(
                    name.span(),
                    format!("field `{name}` needs a value after the `=`"),
                ));
            }
        }
        let mut unit = None;
        if input.peek(Token![=>]) {
            input.parse::<Token![=>]>()?;
            let at = input.cursor();
            let text: LitStr = input.parse().map_err(|_| {
                Error::new(at.span(), "a unit is a string literal, such as `\"flop\"`")
            })?;
            unit = Some(unsuffixed(text)?);
        }
        Ok(Field { name, value, unit })
    }
}

/// Parses a path without generics, which `syn` supports only with its features for syntax trees.
fn path(input: ParseStream<'_>, help: &str) -> Result<TokenStream> {
    let at = input.cursor();
    let wrong = |_| Error::new(at.span(), help);
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
