//! `#[workflow]` and `#[derive(Signal)]`.

use proc_macro2::TokenStream as Tokens;
use quote::quote;
use syn::parse::{Parse, ParseStream};
use syn::spanned::Spanned;
use syn::{DeriveInput, FnArg, Ident, ItemFn, LitInt, LitStr, Pat, Path, ReturnType, Token, Type, parse_quote};

/// The arguments of `#[workflow(...)]`.
pub(crate) struct WorkflowArgs {
    name: Option<LitStr>,
    version: Option<LitInt>,
    path: Path,
}

fn default_path() -> Path {
    parse_quote!(::windlass::durable)
}

impl Parse for WorkflowArgs {
    fn parse(input: ParseStream<'_>) -> syn::Result<Self> {
        let mut args = Self { name: None, version: None, path: default_path() };
        while !input.is_empty() {
            if input.peek(Token![crate]) {
                input.parse::<Token![crate]>()?;
                input.parse::<Token![=]>()?;
                args.path = input.parse()?;
            } else {
                let key: Ident = input.parse()?;
                input.parse::<Token![=]>()?;
                match key.to_string().as_str() {
                    "version" => args.version = Some(version(input)?),
                    "name" => args.name = Some(crate::checked(&input.fork().parse()?).and(input.parse())?),
                    unknown => {
                        let message =
                            format!("`{unknown}` is not a key of `workflow`; there are: version, name, crate");
                        return Err(syn::Error::new(key.span(), message));
                    }
                }
            }
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
        }
        Ok(args)
    }
}

fn version(input: ParseStream<'_>) -> syn::Result<LitInt> {
    let version: LitInt = input.parse()?;
    match version.base10_parse::<u32>() {
        Ok(1..) => Ok(version),
        _ => Err(syn::Error::new(version.span(), "a version is a number from 1")),
    }
}

/// The parts of a workflow function.
struct Signature<'f> {
    wf: (&'f Pat, &'f Type),
    input: (&'f Pat, &'f Type),
    result: &'f Type,
}

pub(crate) fn workflow(args: &WorkflowArgs, function: &ItemFn) -> syn::Result<Tokens> {
    let Signature { wf: (wf, wf_type), input: (input, input_type), result } = signature(function)?;
    let WorkflowArgs { name: given, version, path } = args;
    let ItemFn { attrs, vis, sig, block, .. } = function;
    let name = &sig.ident;
    let text = given.as_ref().map_or_else(|| name.to_string(), LitStr::value);
    let version = version.iter();
    // Docs and lint levels go to the function, and those that concern its name to the type, too.
    let doc = format!("The workflow `{text}`, as a type.");
    Ok(quote! {
        #[doc = #doc]
        #[allow(non_camel_case_types)]
        #[derive(Debug)]
        #vis struct #name {}

        #(#attrs)*
        #vis fn #name(__wf: #wf_type, __input: #input_type) -> #path::Running<#name> {
            #path::Running::new(async move {
                let #wf = __wf;
                let #input = __input;
                #block
            })
        }

        #[automatically_derived]
        impl #path::Workflow for #name {
            const NAME: &'static str = #text;
            #(const VERSION: u32 = #version;)*
            type Input = #input_type;
            type Output = <#result as #path::__private::ResultTypes>::Value;
            type Error = <#result as #path::__private::ResultTypes>::Failure;

            fn run(
                wf: #path::Wf,
                input: Self::Input,
            ) -> impl ::core::future::Future<Output = ::core::result::Result<Self::Output, Self::Error>> + ::core::marker::Send + 'static
            {
                #name(wf, input)
            }
        }
    })
}

fn signature(function: &ItemFn) -> syn::Result<Signature<'_>> {
    const SHAPE: &str = "`async fn name(wf: Wf, input: T) -> Result<U, E>`";
    let sig = &function.sig;
    if sig.asyncness.is_none() {
        return Err(syn::Error::new(sig.fn_token.span(), format!("a workflow is an async function: {SHAPE}")));
    }
    if let Some(generic) = sig.generics.params.first() {
        let message = "a workflow has no generics: a stored run could not name them";
        return Err(syn::Error::new(generic.span(), message));
    }
    if let Some(clause) = &sig.generics.where_clause {
        return Err(syn::Error::new(clause.span(), "a workflow has no generics: a stored run could not name them"));
    }
    let mut arguments = Vec::new();
    for argument in &sig.inputs {
        match argument {
            FnArg::Typed(typed) => arguments.push((&*typed.pat, &*typed.ty)),
            FnArg::Receiver(this) => {
                return Err(syn::Error::new(this.span(), "a workflow is a function, not a method"));
            }
        }
    }
    let [wf, input] = arguments[..] else {
        let message = format!("a workflow takes its `Wf` and one input, `_: ()` for none: {SHAPE}");
        return Err(syn::Error::new(sig.inputs.span(), message));
    };
    for (_, ty) in [wf, input] {
        if let Type::Reference(reference) = ty {
            return Err(syn::Error::new(reference.span(), "the arguments of a workflow are owned: take off the `&`"));
        }
    }
    let ReturnType::Type(_, result) = &sig.output else {
        let message = format!("a workflow returns a `Result`, so that it can fail and be cancelled: {SHAPE}");
        return Err(syn::Error::new(sig.ident.span(), message));
    };
    Ok(Signature { wf, input, result })
}

pub(crate) fn signal(input: &DeriveInput) -> syn::Result<Tokens> {
    let mut name = crate::snake(&input.ident.to_string());
    let mut path = default_path();
    for attribute in input.attrs.iter().filter(|attribute| attribute.path().is_ident("signal")) {
        attribute.parse_nested_meta(|meta| {
            if meta.path.is_ident("name") {
                name = crate::checked(&meta.value()?.parse()?)?;
            } else if meta.path.is_ident("crate") {
                path = meta.value()?.parse()?;
            } else {
                return Err(meta.error("this is not a key of `signal`; there are: name, crate"));
            }
            Ok(())
        })?;
    }
    let (generics, types, bounds) = input.generics.split_for_impl();
    let ident = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #generics #path::Signal for #ident #types #bounds {
            const NAME: &'static str = #name;
        }
    })
}

#[cfg(test)]
mod tests {
    use super::{WorkflowArgs, signal, workflow};

    fn expand(args: &str, function: &str) -> Result<String, String> {
        let args: WorkflowArgs = syn::parse_str(args).map_err(|error| error.to_string())?;
        let function = syn::parse_str(function).map_err(|error| error.to_string())?;
        workflow(&args, &function).map(|made| made.to_string()).map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_may_be_patterns_and_results_aliases() {
        let function = "async fn order(mut wf: Wf, (a, b): (u8, u8)) -> anyhow::Result<u64> { Ok(0) }";
        let made = expand("version = 2, name = \"o\", crate = my::path", function).unwrap();
        let wanted = [
            "struct order { }",
            "let mut wf = __wf",
            "let (a , b) = __input",
            "const VERSION : u32 = 2",
            "const NAME : & 'static str = \"o\"",
            "my :: path :: Running < order >",
            "< anyhow :: Result < u64 > as my :: path :: __private :: ResultTypes > :: Value",
        ];
        for part in wanted {
            assert!(made.contains(part), "{part}\n{made}");
        }
        let plain = expand("", "async fn a(wf: Wf, _: ()) -> Result<(), E> { Ok(()) }").unwrap();
        assert!(plain.contains(":: windlass :: durable :: Running < a >") && !plain.contains("VERSION"));
    }

    #[test]
    fn mistakes_are_named() {
        let cases = [
            ("", "fn a(wf: Wf, n: u8) -> Result<(), E> {}", "async function"),
            ("", "async fn a<T>(wf: Wf, n: T) -> Result<(), E> {}", "no generics"),
            ("", "async fn a(wf: Wf) -> Result<(), E> {}", "one input"),
            ("", "async fn a(wf: Wf, a: u8, b: u8) -> Result<(), E> {}", "one input"),
            ("", "async fn a(&self, a: u8) -> Result<(), E> {}", "not a method"),
            ("", "async fn a(wf: &Wf, a: u8) -> Result<(), E> {}", "take off the `&`"),
            ("", "async fn a(wf: Wf, a: u8) {}", "returns a `Result`"),
            ("versoin = 2", "async fn a(wf: Wf, a: u8) -> R {}", "`versoin` is not a key"),
            ("version = 0", "async fn a(wf: Wf, a: u8) -> R {}", "a number from 1"),
            ("name = \"\"", "async fn a(wf: Wf, a: u8) -> R {}", "1 to 255 bytes"),
        ];
        for (args, function, message) in cases {
            let error = expand(args, function).unwrap_err();
            assert!(error.contains(message), "{message}: {error}");
        }
    }

    #[test]
    fn signals_have_a_name() {
        let made = |input| signal(&syn::parse_str(input).unwrap()).map(|made| made.to_string());
        assert!(made("struct OrderApproved;").unwrap().contains("\"order_approved\""));
        let named = made("#[signal(name = \"ok\", crate = x)] struct A;").unwrap();
        assert!(named.contains("\"ok\"") && named.contains("impl x :: Signal for A"), "{named}");
        assert!(made("#[signal(nme = \"ok\")] struct A;").is_err());
    }
}
