//! From options and an item to the item with a range in its body.

use proc_macro2::{Group, Span, TokenStream, TokenTree};
use quote::{ToTokens, TokenStreamExt, quote, quote_spanned};
use syn::LitStr;
use syn::ext::IdentExt;

use crate::args::Args;
use crate::function::Function;

/// The whole attribute. After an error the item stays as it was, so that the error comes alone.
pub(crate) fn annotate(options: TokenStream, item: TokenStream) -> TokenStream {
    match Args::parse(options).and_then(|args| Ok(expand(args, Function::parse(item.clone())?))) {
        Ok(expansion) => expansion,
        Err(error) => {
            let mut tokens = error.to_compile_error();
            tokens.extend(item);
            tokens
        }
    }
}

fn expand(args: Args, function: Function) -> TokenStream {
    let krate = args.krate.unwrap_or_else(|| quote!(::nvtx));
    let name = args.name.unwrap_or_else(|| {
        let name = &function.name;
        LitStr::new(&name.unraw().to_string(), name.span())
    });

    // Hygienic: a variable of this name in the body is another variable.
    let guard = quote_spanned! { Span::mixed_site() =>
        let __nvtx_range = #krate::__private::range(#name);
    };
    let mut body = TokenStream::new();
    body.append_all(function.inner_attributes);
    body.extend(guard);
    body.append_all(function.statements);
    let mut braces = Group::new(function.braces.delimiter(), body);
    braces.set_span(function.braces.span());

    let mut item = TokenStream::new();
    item.append_all(function.head);
    TokenTree::Group(braces).to_tokens(&mut item);
    item
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

    #[test]
    fn a_guard_stands_before_the_body_and_the_rest_is_the_same() {
        let item = |guard: &str| {
            printed(&format!(
                "#[inline] pub(crate) unsafe extern \"C\" fn f<'a, T, const N: usize>(x: &'a T) \
                 -> [u8; {{ N }}] where T: A<{{ 1 + 1 }}> {{ {guard} unsafe {{ g(x) }} }}"
            ))
        };
        assert_eq!(
            expanded("", &item("")),
            item("let __nvtx_range = ::nvtx::__private::range(\"f\");")
        );
        assert_eq!(
            expanded("crate = a::b, name = \"n\"", &item("")),
            item("let __nvtx_range = a::b::__private::range(\"n\");")
        );
    }

    #[test]
    fn nothing_unsafe_is_emitted() {
        assert!(!expanded("", "fn f() {}").contains("unsafe"));
    }

    #[test]
    fn inner_attributes_stay_in_front() {
        let expanded = expanded("", "fn f() { #![allow(a)] #![allow(b)] #[c] let x = !y; }");
        let guard = "let __nvtx_range = ::nvtx::__private::range(\"f\");";
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
    fn an_error_leaves_the_item_as_it_was() {
        for item in ["async fn f() { g().await }", "struct S;", "fn f();"] {
            let expanded = expanded("", item);
            assert!(expanded.contains("compile_error"), "{expanded}");
            assert!(expanded.ends_with(&printed(item)), "{expanded}");
        }
        assert!(expanded("name = 1", "fn f() {}").ends_with(&printed("fn f() {}")));
        assert!(expanded("", "").contains("compile_error"));
    }
}
