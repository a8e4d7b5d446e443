//! `#[handler]`: checks each part of a handler for itself, so that a mistake is told where it was made.

use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::spanned::Spanned;
use syn::{FnArg, GenericArgument, ItemFn, PathArguments, ReturnType, Type, parse_quote};

/// The job and what a handler may ask for beside it.
const ARGUMENTS_MAX: usize = 5;

pub(crate) fn handler(function: &ItemFn) -> syn::Result<Tokens> {
    let signature = &function.sig;
    if signature.asyncness.is_none() {
        return Err(syn::Error::new(signature.fn_token.span(), "a handler is an `async fn`"));
    }
    if let Some(generic) = signature.generics.params.first() {
        return Err(syn::Error::new(
            generic.span(),
            "a handler that is checked has no generics; take the attribute off",
        ));
    }
    let types = types_of(function)?;
    let Some((job, others)) = types.split_first() else {
        return Err(syn::Error::new(signature.ident.span(), "a handler takes its job as its first argument"));
    };
    if types.len() > ARGUMENTS_MAX {
        let words = format!("a handler takes its job and at most {} more", ARGUMENTS_MAX - 1);
        return Err(syn::Error::new(types[ARGUMENTS_MAX].span(), words));
    }
    if let Some(name) = is_asked_for(job) {
        let words = format!("the job comes first; `{name}` comes after it");
        return Err(syn::Error::new(job.span(), words));
    }
    let answer: Type = match &signature.output {
        ReturnType::Default => parse_quote!(()),
        ReturnType::Type(_, answer) => (**answer).clone(),
    };
    if let Some(text) = text_as_error(&answer) {
        let words = "a text is not an error; return `JobError` and say `Err(JobError::new(text))`";
        return Err(syn::Error::new(text.span(), words));
    }
    let job_check = quote_spanned! { job.span() => ::windlass::__private::is_job::<#job>(); };
    let other_checks = others.iter().map(|other| {
        quote_spanned! { other.span() => ::windlass::__private::is_asked_for::<#other>(); }
    });
    let answer_check = quote_spanned! { answer.span() => ::windlass::__private::is_answer::<#job, #answer>(); };
    let name = &signature.ident;
    let arguments: Vec<_> = (0..types.len()).map(|n| quote::format_ident!("argument_{n}")).collect();
    let send_check = quote_spanned! { name.span() => ::windlass::__private::is_send(#name(#(#arguments),*)) };
    Ok(quote! {
        #function

        const _: () = {
            #[allow(unreachable_code, unused, clippy::all, reason = "it is compiled and never run")]
            fn check(#(#arguments: #types),*) {
                #job_check
                #(#other_checks)*
                #answer_check
                #send_check
            }
        };
    })
}

fn types_of(function: &ItemFn) -> syn::Result<Vec<&Type>> {
    function.sig.inputs.iter().map(type_of).collect()
}

fn type_of(argument: &FnArg) -> syn::Result<&Type> {
    match argument {
        FnArg::Typed(typed) => Ok(&typed.ty),
        FnArg::Receiver(this) => Err(syn::Error::new(this.span(), "a handler is a function, not a method")),
    }
}

/// `String` or `&str` in the place of the error.
fn text_as_error(answer: &Type) -> Option<&Type> {
    let Type::Path(path) = answer else { return None };
    let PathArguments::AngleBracketed(arguments) = &path.path.segments.last()?.arguments else { return None };
    let GenericArgument::Type(error) = arguments.args.iter().nth(1)? else { return None };
    let named = if let Type::Reference(reference) = error { &*reference.elem } else { error };
    let Type::Path(named) = named else { return None };
    let name = &named.path.segments.last()?.ident;
    ["String", "str"].into_iter().any(|text| name == text).then_some(error)
}

/// The name of what certainly is no job.
fn is_asked_for(ty: &Type) -> Option<&'static str> {
    let Type::Path(path) = ty else { return None };
    let name = &path.path.segments.last()?.ident;
    ["Ctx", "State"].into_iter().find(|known| name == known)
}
