//! The text as the parser takes it in: character by character, as from any text, but with less room for each scalar. The
//! parser makes room for as many characters as its input says it holds at once, 128 for a text, and most scalars are short.

use saphyr_parser::{Input, StrInput};

/// What the parser counts on at least.
const ROOM: usize = 16;

pub(super) struct Chars<'t>(StrInput<'t>);

impl<'t> Chars<'t> {
    pub(super) fn new(text: &'t str) -> Self {
        Self(StrInput::new(text))
    }
}

/// Methods that the text has itself.
macro_rules! pass_on {
    (&mut self: $($change:ident($($count:ident: $of:ty)?) $(-> $changed:ty)?;)+
     &self: $($read:ident($($arg:ident: $type:ty)?) -> $found:ty;)+) => {
        $(#[inline]
        fn $change(&mut self $(, $count: $of)?) $(-> $changed)? {
            self.0.$change($($count)?)
        })+

        $(#[inline]
        fn $read(&self $(, $arg: $type)?) -> $found {
            self.0.$read($($arg)?)
        })+
    };
}

/// Hands on what the text knows how to do quicker than one character after the other.
impl Input for Chars<'_> {
    #[inline]
    fn bufmaxlen(&self) -> usize {
        ROOM
    }

    pass_on! {
        &mut self:
        lookahead(count: usize);
        raw_read_ch() -> char;
        raw_read_non_breakz_ch() -> Option<char>;
        skip();
        skip_n(count: usize);
        skip_while_non_breakz() -> usize;
        skip_while_blank() -> usize;
        &self:
        buflen() -> usize;
        peek() -> char;
        peek_nth(n: usize) -> char;
        peek_opt() -> Option<char>;
        next_is_document_indicator() -> bool;
        next_can_be_plain_scalar(in_flow: bool) -> bool;
        next_is_blank_or_break() -> bool;
        next_is_blank_or_breakz() -> bool;
        next_is_blank() -> bool;
        next_is_break() -> bool;
        next_is_breakz() -> bool;
        next_is_z() -> bool;
        next_is_flow() -> bool;
    }
}
