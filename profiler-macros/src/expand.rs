//! Expands an item with options to the item with a range in its body.

use proc_macro2::{Group, Ident, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, format_ident, quote, quote_spanned};
use syn::ext::IdentExt;
use syn::{Error, LitBool, LitStr, Result};

use crate::args::{Args, expanded};
use crate::function::{Function, Kind, is_word};

/// Expands the whole attribute.
pub(crate) fn annotate(options: TokenStream, item: TokenStream) -> TokenStream {
    let args = Args::parse(options);
    expanded(args.and_then(|args| expand(args, Function::parse(item.clone(), "annotate")?)), item)
}

const CONST: &str = "`annotate` can't be used on a `const fn`: starting a range is not constant; \
                     remove `const`, or annotate the caller";

fn expand(args: Args, function: Function) -> Result<TokenStream> {
    if let Some(constant) = function.constant {
        return Err(Error::new(constant, CONST));
    }
    if function.kind == Kind::Value
        && let Some(flag) = args.lifetime.as_ref().or(args.polls.as_ref())
    {
        let help = "`lifetime` and `polls` are for futures: an `async fn`, or one that returns `impl Future` or a boxed \
                    future";
        return Err(Error::new(flag.span(), help));
    }
    if let Some(flag) = args.lifetime.as_ref().filter(|flag| !flag.value)
        && args.has_details()
    {
        let help = format!(
            "without the range of its life a future has no place for {}, since polls have the name alone: remove them, or \
             `lifetime = false`",
            args.details().join(", ")
        );
        return Err(Error::new(flag.span(), help));
    }
    let krate = args.krate.clone().unwrap_or_else(|| quote!(::nvtx));
    let private = quote!(#krate::__private);
    let site = site(&args, &function, &private);
    let statements = &function.statements;
    let mut body = TokenStream::new();
    body.append_all(&function.inner_attributes);
    match function.kind {
        Kind::Value => {
            let start = start(&args, "range");
            // Hygienic: a variable of this name in the body is another variable.
            body.extend(quote_spanned! { Span::mixed_site() =>
                #site
                let __nvtx_range = #start;
            });
            body.append_all(statements);
        }
        Kind::Async => {
            let hint = type_hint(&function.output);
            let future = future(&args, &private);
            let inner = block(&function, quote!(#hint #(#statements)*));
            body.extend(quote_spanned! { Span::mixed_site() =>
                #site
                #future(async move #inner).await
            });
        }
        Kind::ImplFuture => {
            let future = future(&args, &private);
            let inner = block(&function, quote!(#(#statements)*));
            // A closure, so that a `return` in the body also returns its future to the wrapper.
            // `call` takes a closure that runs once, so that the future may own the captured
            // values.
            body.extend(quote_spanned! { Span::mixed_site() =>
                #site
                #future(#private::call(move || #inner))
            });
        }
        Kind::BoxFuture => {
            let future = future(&args, &private);
            let inner = block(&function, quote!(#(#statements)*));
            // With the type, since boxes of several futures may be returned. A closure's return
            // type cannot be an `impl Trait`.
            let output = match &function.output {
                output if has_impl(output) => None,
                output => Some(quote!(-> #(#output)*)),
            };
            body.extend(quote_spanned! { Span::mixed_site() =>
                #site
                #private::Box::pin(#future(#private::call(move || #output #inner)))
            });
        }
    }
    let braces = block(&function, body);
    let mut item = TokenStream::new();
    item.append_all(function.head);
    braces.to_tokens(&mut item);
    Ok(item)
}

/// Braces with the span of the user's braces.
fn block(function: &Function, content: TokenStream) -> TokenTree {
    let mut braces = Group::new(function.braces.delimiter(), content);
    braces.set_span(function.braces.span());
    TokenTree::Group(braces)
}

/// Returns the static that stores the range's data known before its start.
fn site(args: &Args, function: &Function, private: &TokenStream) -> TokenStream {
    let name = args.name.clone().unwrap_or_else(|| {
        let name = &function.name;
        LitStr::new(&name.unraw().to_string(), name.span())
    });
    let name = match args.qualified {
        Some(_) => quote!(#private::concat!(#private::module_path!(), "::", #name)),
        None => quote!(#name),
    };
    let new = match &args.domain {
        Some(domain) => quote!(in_domain(#name, &#domain)),
        None => quote!(new(#name)),
    };
    quote_spanned! { Span::mixed_site() =>
        static __NVTX_SITE: #private::CallSite = #private::CallSite::#new;
    }
}

/// The expression that starts a `range` or a `process_range`.
fn start(args: &Args, what: &str) -> TokenStream {
    if !args.has_details() {
        let what = Ident::new(what, Span::mixed_site());
        return quote_spanned!(Span::mixed_site() => __NVTX_SITE.#what());
    }
    let with = format_ident!("{what}_with", span = Span::mixed_site());
    let details = details(args);
    quote_spanned!(Span::mixed_site() => __NVTX_SITE.#with(|__nvtx_event| __nvtx_event #details))
}

/// Returns the calls that add the requested details to an event.
fn details(args: &Args) -> TokenStream {
    let call = |(method, value): (&str, &Option<TokenStream>)| {
        let method = Ident::new(method, Span::mixed_site());
        value.as_ref().map(|value| quote!(.#method(#value)))
    };
    let own = [("color", &args.color), ("category", &args.category), ("payload", &args.payload)];
    let mut calls: TokenStream = own.into_iter().filter_map(call).collect();
    for field in &args.fields {
        let name = LitStr::new(&field.name.unraw().to_string(), field.name.span());
        let value = &field.value;
        let unit = field.unit.clone().unwrap_or_else(|| LitStr::new("", Span::mixed_site()));
        calls.extend(quote!(.field(#name, #value, #unit)));
    }
    calls.extend(args.work().into_iter().filter_map(call));
    calls
}

/// Returns the function that wraps a future, up to its opening parenthesis. The whole life is a
/// process range, which has the details; the polls are thread ranges with only the name.
fn future(args: &Args, private: &TokenStream) -> TokenStream {
    let wanted = |flag: &Option<LitBool>| flag.as_ref().is_none_or(|flag| flag.value);
    let lifetime = if wanted(&args.lifetime) {
        let start = start(args, "process_range");
        quote!(#private::Some(#start))
    } else {
        quote!(#private::None)
    };
    let polls = wanted(&args.polls);
    quote_spanned!(Span::mixed_site() => #private::InRange::at(&__NVTX_SITE, #lifetime, #polls).follow)
}

/// Gives the compiler the same knowledge of an async block's type as of the function's type: `?`
/// needs it.
fn type_hint(output: &[TokenTree]) -> TokenStream {
    // A variable can be neither an `impl Trait` nor, in stable Rust, a `!`.
    let is_never = matches!(output, [TokenTree::Punct(bang)] if bang.as_char() == '!');
    if is_never || has_impl(output) {
        return TokenStream::new();
    }
    let output = if output.is_empty() { quote!(()) } else { quote!(#(#output)*) };
    quote_spanned! { Span::mixed_site() =>
        #[allow(unreachable_code, clippy::diverging_sub_expression, clippy::empty_loop)]
        if false {
            let __nvtx_output: #output = loop {};
            return __nvtx_output;
        }
    }
}

/// True if an `impl Trait` occurs anywhere in a type.
fn has_impl(tokens: &[TokenTree]) -> bool {
    tokens.iter().any(|token| match token {
        TokenTree::Group(group) => has_impl(&group.stream().into_iter().collect::<Vec<_>>()),
        word => is_word(word, "impl"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The expansion of an item given as text, as text.
    fn expanded(options: &str, item: &str) -> String {
        annotate(options.parse().unwrap(), item.parse().unwrap()).to_string()
    }

    /// `text` with the spaces that tokens get when they are printed.
    fn printed(text: &str) -> String {
        text.parse::<TokenStream>().unwrap().to_string()
    }

    /// The statements before a body.
    fn guard(krate: &str, site: &str, start: &str) -> String {
        format!(
            "static __NVTX_SITE: {krate}::__private::CallSite = {krate}::__private::CallSite::{site}; \
             let __nvtx_range = __NVTX_SITE.{start};"
        )
    }

    #[test]
    fn guard_precedes_an_otherwise_unchanged_body() {
        let item = |guard: &str| {
            printed(&format!(
                "#[inline] pub(crate) unsafe extern \"C\" fn f<'a, T, const N: usize>(x: &'a T) \
                 -> [u8; {{ N }}] where T: A<{{ 1 + 1 }}> {{ {guard} unsafe {{ g(x) }} }}"
            ))
        };
        assert_eq!(expanded("", &item("")), item(&guard("::nvtx", "new(\"f\")", "range()")));
        assert_eq!(
            expanded("crate = a::b, name = \"n\", domain = c::D", &item("")),
            item(&guard("a::b", "in_domain(\"n\", &c::D)", "range()"))
        );
    }

    #[test]
    fn details_are_described_only_with_a_tool_or_observer() {
        let options = "color = Color::RED, category = D.category(\"x, y\"), payload = f(a, b) + 1, \
                       flops = 2 * n, fields(n, flops = 2.0 * n => \"flop\"), dtype = nvtx::Dtype::F32";
        let with = "range_with(|__nvtx_event| __nvtx_event .color(Color::RED) .category(D.category(\"x, y\")) \
                    .payload(f(a, b) + 1) .field(\"n\", n, \"\") .field(\"flops\", 2.0 * n, \"flop\") \
                    .flops(2 * n) .dtype(nvtx::Dtype::F32))";
        let expected = format!("fn f() {{ {} g() }}", guard("::nvtx", "new(\"f\")", with));
        assert_eq!(expanded(options, "fn f() { g() }"), printed(&expected));
    }

    #[test]
    fn a_qualified_name_begins_with_the_module() {
        let name = "::nvtx::__private::concat!(::nvtx::__private::module_path!(), \"::\", \"f\")";
        let expected =
            format!("fn f() {{ {} }}", guard("::nvtx", &format!("new({name})"), "range()"));
        assert_eq!(expanded("qualified", "fn f() {}"), printed(&expected));
    }

    #[test]
    fn kind_of_a_function_is_read_from_its_signature() {
        for (item, kind) in [
            ("fn f() -> u32 { 1 }", Kind::Value),
            ("fn f<F: Fn(u32) -> Vec<u32>>(f: F) -> Vec<u32> where F: Send { 1 }", Kind::Value),
            ("pub async unsafe fn f(self: Pin<&mut Self>) -> Result<(), E> { 1 }", Kind::Async),
            (
                "fn f<T>(x: T) -> impl Future<Output = T> + Send where T: Send { 1 }",
                Kind::ImplFuture,
            ),
            ("fn f() -> impl Send + std::future::Future<Output = ()> { 1 }", Kind::ImplFuture),
            ("fn f() -> impl Iterator<Item = Future> { 1 }", Kind::Value),
            ("fn f() -> Future { 1 }", Kind::Value),
            ("fn f() -> Pin<Box<dyn Future<Output = ()>>> { 1 }", Kind::BoxFuture),
            (
                "fn f<'a>(&'a self) -> ::core::pin::Pin<Box<dyn ::core::future::Future<Output = ()> + Send + 'a>> \
                 where Self: 'a { 1 }",
                Kind::BoxFuture,
            ),
            (
                "fn f() -> Pin<std::boxed::Box<dyn Send + Future<Output = ()>>> { 1 }",
                Kind::BoxFuture,
            ),
            ("fn f(&self) -> BoxFuture<'_, ()> { 1 }", Kind::BoxFuture),
            ("fn f(&self) -> futures::future::LocalBoxFuture<'_, ()> { 1 }", Kind::BoxFuture),
            ("fn f() -> Vec<BoxFuture<'static, ()>> { 1 }", Kind::Value),
            ("fn f() -> BoxFuture<'static, ()>::Other { 1 }", Kind::Value),
            ("fn f() -> Pin<Box<dyn Stream<Item = Future>>> { 1 }", Kind::Value),
            ("fn f() -> Pin<Box<dyn Display>> { 1 }", Kind::Value),
            ("fn f() -> Pin<&mut dyn Future<Output = ()>> { 1 }", Kind::Value),
            ("fn f() -> Box<dyn Future<Output = ()>> { 1 }", Kind::Value),
            ("fn f() -> Option<Pin<Box<dyn Future<Output = ()>>>> { 1 }", Kind::Value),
        ] {
            assert_eq!(
                Function::parse(item.parse().unwrap(), "annotate").unwrap().kind,
                kind,
                "{item}"
            );
        }
        let output = |item: &str| {
            let output = Function::parse(item.parse().unwrap(), "annotate").unwrap().output;
            quote!(#(#output)*).to_string()
        };
        assert_eq!(
            output("fn f<F: Fn(A) -> B>(f: F) -> Vec<fn(A) -> B> where F: C {}"),
            printed("Vec<fn(A) -> B>")
        );
        assert_eq!(output("fn f(a: [u8; { 1 }]) {}"), "");
    }

    #[test]
    fn future_has_lifetime_and_poll_ranges_by_default() {
        let item = "async fn f(x: u32) -> u32 { g(x).await }";
        let all = expanded("", item);
        assert!(
            all.contains(&printed("::nvtx::__private::Some(__NVTX_SITE.process_range()), true")),
            "{all}"
        );
        assert!(all.contains(&printed("let __nvtx_output: u32 = loop {};")), "{all}");
        let none = expanded("lifetime = false, polls = false", item);
        assert!(none.contains(&printed("::nvtx::__private::None, false")), "{none}");
        let impl_future = expanded("", "fn f() -> impl Future<Output = ()> { async {} }");
        let call = printed("follow(::nvtx::__private::call(move || { async {} }))");
        assert!(impl_future.contains(&call), "{impl_future}");
        let boxed = expanded("", "fn f() -> BoxFuture<'static, ()> { g() }");
        let call =
            printed("follow(::nvtx::__private::call(move || -> BoxFuture<'static, ()> { g() }))");
        assert!(boxed.contains(&printed("::nvtx::__private::Box::pin")), "{boxed}");
        assert!(boxed.contains(&call), "{boxed}");
    }

    #[test]
    fn nothing_unsafe_is_emitted() {
        for item in
            ["fn f() {}", "async fn f() {}", "fn f() -> impl Future<Output = ()> { async {} }"]
        {
            assert!(!expanded("", item).contains("unsafe"));
        }
    }

    #[test]
    fn inner_attributes_remain_first() {
        let expanded = expanded("", "fn f() { #![allow(a)] #![allow(b)] #[c] let x = !y; }");
        let guard = guard("::nvtx", "new(\"f\")", "range()");
        let expected = format!("fn f() {{ #![allow(a)] #![allow(b)] {guard} #[c] let x = !y; }}");
        assert_eq!(expanded, printed(&expected));
    }

    #[test]
    fn a_body_need_not_be_rust_that_this_crate_knows() {
        let body = printed("future syntax => @ { 1 ~ 2 }");
        let expanded = expanded("", &format!("fn f() {{ {body} }}"));
        assert!(expanded.contains(&body), "{expanded}");
    }

    #[test]
    fn error_leaves_the_item_unchanged() {
        for item in ["const fn f() {}", "struct S;", "fn f();"] {
            let expanded = expanded("", item);
            assert!(expanded.contains("compile_error"), "{expanded}");
            assert!(expanded.ends_with(&printed(item)), "{expanded}");
        }
        for options in
            ["name = 1", "polls = false", "domain = \"d\"", "fields()", "fields(1)", "payload = ,"]
        {
            let expanded = expanded(options, "fn f() {}");
            assert!(expanded.contains("compile_error"), "{options}: {expanded}");
            assert!(expanded.ends_with(&printed("fn f() {}")), "{options}: {expanded}");
        }
        let lost = expanded("lifetime = false, color = c, flops = 1, fields(x)", "async fn f() {}");
        assert!(lost.contains("no place for `color`, `fields`, `flops`, since"), "{lost}");
        assert!(expanded("", "").contains("compile_error"));
    }
}
