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

/// Hands on what the text knows how to do quicker than one character after the other.
impl Input for Chars<'_> {
    #[inline]
    fn lookahead(&mut self, count: usize) {
        self.0.lookahead(count);
    }

    #[inline]
    fn buflen(&self) -> usize {
        self.0.buflen()
    }

    #[inline]
    fn bufmaxlen(&self) -> usize {
        ROOM
    }

    #[inline]
    fn raw_read_ch(&mut self) -> char {
        self.0.raw_read_ch()
    }

    #[inline]
    fn raw_read_non_breakz_ch(&mut self) -> Option<char> {
        self.0.raw_read_non_breakz_ch()
    }

    #[inline]
    fn skip(&mut self) {
        self.0.skip();
    }

    #[inline]
    fn skip_n(&mut self, count: usize) {
        self.0.skip_n(count);
    }

    #[inline]
    fn peek(&self) -> char {
        self.0.peek()
    }

    #[inline]
    fn peek_nth(&self, n: usize) -> char {
        self.0.peek_nth(n)
    }

    #[inline]
    fn peek_opt(&self) -> Option<char> {
        self.0.peek_opt()
    }

    #[inline]
    fn next_is_document_indicator(&self) -> bool {
        self.0.next_is_document_indicator()
    }

    #[inline]
    fn next_can_be_plain_scalar(&self, in_flow: bool) -> bool {
        self.0.next_can_be_plain_scalar(in_flow)
    }

    #[inline]
    fn next_is_blank_or_break(&self) -> bool {
        self.0.next_is_blank_or_break()
    }

    #[inline]
    fn next_is_blank_or_breakz(&self) -> bool {
        self.0.next_is_blank_or_breakz()
    }

    #[inline]
    fn next_is_blank(&self) -> bool {
        self.0.next_is_blank()
    }

    #[inline]
    fn next_is_break(&self) -> bool {
        self.0.next_is_break()
    }

    #[inline]
    fn next_is_breakz(&self) -> bool {
        self.0.next_is_breakz()
    }

    #[inline]
    fn next_is_z(&self) -> bool {
        self.0.next_is_z()
    }

    #[inline]
    fn next_is_flow(&self) -> bool {
        self.0.next_is_flow()
    }

    #[inline]
    fn skip_while_non_breakz(&mut self) -> usize {
        self.0.skip_while_non_breakz()
    }

    #[inline]
    fn skip_while_blank(&mut self) -> usize {
        self.0.skip_while_blank()
    }
}
