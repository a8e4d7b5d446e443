//! `#[derive(Job)]`: sugar over the trait `windlass::Job`, nothing else; and `#[handler]`, which changes nothing and says
//! what is wrong with a handler. For durable workflows: `#[workflow]` and `#[derive(Signal)]`.

mod durable;
mod handler;

use proc_macro::TokenStream;
use proc_macro2::TokenStream as Tokens;
use quote::{quote, quote_spanned};
use syn::meta::ParseNestedMeta;
use syn::spanned::Spanned;
use syn::{Attribute, Data, DeriveInput, Expr, ItemFn, Lit, LitStr, Type, parse_macro_input, parse_quote};

/// Makes a type a job.
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Job)]
/// #[job(kind = "welcome", queue = "mail", attempts = 5, timeout = "30s", unique = self.to)]
/// struct Welcome { to: String }
/// ```
///
/// | key | meaning | default |
/// |---|---|---|
/// | `kind = "…"` | what it is | the type's name in snake case |
/// | `queue = "…"` | where it waits | `default` |
/// | `output = T` | what its handler returns | `()` |
/// | `attempts = n`, `stalls = n`, `priority = n` | numbers | 3, 1, 0 |
/// | `timeout = "30s"` | how long an attempt may take: `ms`, `s`, `m`, `h` | none |
/// | `heartbeat = "30s"` | how long an attempt may go without a heartbeat or progress | none |
/// | `group = expr`, `unique = expr`, `id = expr` | made of `self`; anything that can be displayed | none |
/// | `retry = expr` | a `RetryPolicy` | exponential |
/// | `lifo` | heads its priority | |
#[proc_macro_derive(Job, attributes(job))]
pub fn derive_job(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    job(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// Says what is wrong with a handler, where it is wrong. It changes nothing; take it off again when all is well, or leave
/// it on.
///
/// ```ignore
/// #[windlass::handler]
/// async fn welcome(job: Welcome, pool: State<Pool>) -> Result<(), JobError> { Ok(()) }
/// ```
#[proc_macro_attribute]
pub fn handler(_: TokenStream, item: TokenStream) -> TokenStream {
    let function = parse_macro_input!(item as ItemFn);
    let checked = handler::handler(&function);
    // The function stays in any case, so that nobody complains that it is not there.
    let wrong = |error: syn::Error| {
        let error = error.into_compile_error();
        quote! { #function #error }
    };
    checked.unwrap_or_else(wrong).into()
}

/// Makes an async function a durable workflow.
///
/// ```ignore
/// #[windlass::durable::workflow(version = 2)]
/// async fn order(wf: Wf, order: Order) -> Result<Receipt, Error> { ... }
/// ```
///
/// The function keeps its name and its arguments, and returns `Running<order>`, which can be awaited in place; `order` is also
/// a type that implements `Workflow`.
///
/// | key | meaning | default |
/// |---|---|---|
/// | `version = n` | incremented by a change that running workflows cannot take | 1 |
/// | `name = "…"` | the name of the workflow | the function's |
/// | `crate = path` | where the items of `windlass::durable` are | `::windlass::durable` |
#[proc_macro_attribute]
pub fn workflow(args: TokenStream, item: TokenStream) -> TokenStream {
    let args = parse_macro_input!(args as durable::WorkflowArgs);
    let function = parse_macro_input!(item as ItemFn);
    let made = durable::workflow(&args, &function);
    // The function stays in any case, so that only the error is reported and not its absence.
    let wrong = |error: syn::Error| {
        let error = error.into_compile_error();
        quote! { #function #error }
    };
    made.unwrap_or_else(wrong).into()
}

/// Makes a type a message to a durable workflow.
///
/// ```ignore
/// #[derive(Serialize, Deserialize, Signal)]
/// #[signal(name = "approve")]
/// struct Approve { by: String }
/// ```
///
/// The name is that of the type in snake case, unless `name = "…"` gives another; `crate = path` is where the items of
/// `windlass::durable` are.
#[proc_macro_derive(Signal, attributes(signal))]
pub fn derive_signal(input: TokenStream) -> TokenStream {
    let input = parse_macro_input!(input as DeriveInput);
    durable::signal(&input).unwrap_or_else(syn::Error::into_compile_error).into()
}

/// What the attributes say.
struct Said {
    kind: String,
    queue: Option<LitStr>,
    output: Type,
    /// Calls on the options.
    calls: Vec<Tokens>,
    keys: Vec<String>,
}

fn job(input: &DeriveInput) -> syn::Result<Tokens> {
    check_place(input)?;
    let kind = snake(&input.ident.to_string());
    let mut said = Said { kind, queue: None, output: parse_quote!(()), calls: Vec::new(), keys: Vec::new() };
    for attribute in input.attrs.iter().filter(|attribute| is_ours(attribute)) {
        check_keys(attribute)?;
        attribute.parse_nested_meta(|meta| said.take(&meta))?;
    }
    let Said { kind, queue, output, calls, .. } = said;
    let queue = queue.map(|queue| quote! { const QUEUE: &'static str = #queue; });
    let (generics, types, bounds) = input.generics.split_for_impl();
    let name = &input.ident;
    Ok(quote! {
        #[automatically_derived]
        impl #generics ::windlass::Job for #name #types #bounds {
            const KIND: &'static str = #kind;
            #queue
            type Output = #output;

            fn options(&self) -> ::windlass::Options {
                ::windlass::Options::new() #(#calls)*
            }
        }
    })
}

fn is_ours(attribute: &Attribute) -> bool {
    attribute.path().is_ident("job")
}

/// What stands where nobody would read it is refused.
fn check_place(input: &DeriveInput) -> syn::Result<()> {
    let inside: Vec<&Attribute> = match &input.data {
        Data::Struct(data) => data.fields.iter().flat_map(|field| &field.attrs).collect(),
        Data::Enum(data) => {
            let fields = data.variants.iter().flat_map(|variant| &variant.fields).flat_map(|field| &field.attrs);
            data.variants.iter().flat_map(|variant| &variant.attrs).chain(fields).collect()
        }
        Data::Union(union) => {
            return Err(syn::Error::new(
                union.union_token.span,
                "a union cannot be a job; make it a struct or an enum",
            ));
        }
    };
    match inside.into_iter().find(|attribute| is_ours(attribute)) {
        Some(attribute) => {
            let words = "`job` belongs on the type: all its values are jobs of one kind";
            Err(syn::Error::new_spanned(attribute, words))
        }
        None => Ok(()),
    }
}

/// A value without a key.
fn check_keys(attribute: &Attribute) -> syn::Result<()> {
    let first = attribute.meta.require_list()?.tokens.clone().into_iter().next();
    match first {
        Some(proc_macro2::TokenTree::Literal(literal)) => {
            let words = format!("say what it is: `kind = {literal}` or `queue = {literal}`");
            Err(syn::Error::new(literal.span(), words))
        }
        _ => Ok(()),
    }
}

impl Said {
    fn take(&mut self, meta: &ParseNestedMeta<'_>) -> syn::Result<()> {
        let key = meta.path.get_ident().map(ToString::to_string).unwrap_or_default();
        if self.keys.contains(&key) {
            return Err(meta.error(format!("`{key}` is said twice")));
        }
        self.keys.push(key.clone());
        match key.as_str() {
            "kind" => self.kind = checked(&meta.value()?.parse()?)?,
            "queue" => {
                let queue: LitStr = meta.value()?.parse()?;
                checked(&queue)?;
                self.queue = Some(queue);
            }
            "output" => self.output = meta.value()?.parse()?,
            "timeout" | "heartbeat" => {
                let ms = milliseconds(&meta.value()?.parse()?)?;
                let call = syn::Ident::new(&key, proc_macro2::Span::call_site());
                self.calls.push(quote! { .#call(::std::time::Duration::from_millis(#ms)) });
            }
            "attempts" | "stalls" | "priority" | "retry" => {
                let value: Expr = meta.value()?.parse()?;
                if key == "attempts" && is_zero(&value) {
                    return Err(syn::Error::new_spanned(
                        value,
                        "`attempts` is 0 and the job would never run; give 1 or more",
                    ));
                }
                let call = syn::Ident::new(&key, proc_macro2::Span::call_site());
                self.calls.push(quote! { .#call(#value) });
            }
            "group" | "unique" | "id" => {
                let value: Expr = meta.value()?.parse()?;
                let call = syn::Ident::new(&key, proc_macro2::Span::call_site());
                let text = quote_spanned! { value.span() => ::std::string::ToString::to_string(&#value) };
                self.calls.push(quote! { .#call(#text) });
            }
            "lifo" => self.calls.push(quote! { .lifo() }),
            unknown => {
                let near = KEYS.iter().find(|key| !unknown.is_empty() && key.starts_with(&unknown[..1]));
                let hint = near.map(|key| format!("; did you mean `{key}`?")).unwrap_or_default();
                return Err(
                    meta.error(format!("`{unknown}` is not a key of `job`{hint} There are: {}", KEYS.join(", ")))
                );
            }
        }
        Ok(())
    }
}

const KEYS: [&str; 13] = [
    "kind",
    "queue",
    "output",
    "attempts",
    "stalls",
    "priority",
    "timeout",
    "heartbeat",
    "retry",
    "group",
    "unique",
    "id",
    "lifo",
];

fn is_zero(value: &Expr) -> bool {
    let Expr::Lit(literal) = value else { return false };
    matches!(&literal.lit, Lit::Int(number) if number.base10_digits() == "0")
}

/// A name that the store will take.
fn checked(name: &LitStr) -> syn::Result<String> {
    let text = name.value();
    if text.is_empty() || text.len() > 255 || text.chars().any(char::is_control) {
        return Err(syn::Error::new(name.span(), "give 1 to 255 bytes without control characters"));
    }
    Ok(text)
}

fn milliseconds(text: &LitStr) -> syn::Result<u64> {
    let wrong = || syn::Error::new(text.span(), "write it as 500ms, 30s, 5m or 1h");
    let value = text.value();
    let digits = value.find(|c: char| !c.is_ascii_digit()).ok_or_else(wrong)?;
    let (number, unit) = value.split_at(digits);
    let number: u64 = number.parse().map_err(|_| wrong())?;
    let unit = match unit {
        "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        _ => return Err(wrong()),
    };
    number.checked_mul(unit).filter(|ms| *ms > 0).ok_or_else(wrong)
}

/// `SendInvoice` → `send_invoice`.
fn snake(name: &str) -> String {
    let mut snake = String::new();
    for (at, letter) in name.char_indices() {
        if letter.is_uppercase() && at > 0 {
            snake.push('_');
        }
        snake.extend(letter.to_lowercase());
    }
    snake
}
