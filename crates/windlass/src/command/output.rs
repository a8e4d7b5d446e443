//! What commands say: two pipes, read by one task, so that lines keep their order as far as anybody can know it.

use super::mask::Mask;
use crate::context::Ctx;
use crate::worker::now;
use memchr::memchr;
use std::collections::VecDeque;
use std::fmt::Write;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, ReadBuf};
use tokio::sync::watch;
use windlass_core::store::{LOG_LINE_BYTES_MAX, LogLine, LogStream};

/// Read at once.
const CHUNK_BYTES: usize = 16 << 10;
/// The most lines that are passed on at once; see `LINES_FULL` of the worker.
const LINES_MAX: usize = 512;
/// A process that has left the step's group may hold its pipes open and write to them. When the step has ended, the pipes are
/// read until nothing comes for so long.
const SILENCE: Duration = Duration::from_millis(200);
/// After this time nothing more is waited for, however short the pauses are; what the pipes hold by then is still read.
const REST_TIME_MAX: Duration = Duration::from_secs(2);
/// The most that is read after the end of the step: as much as two pipes can hold.
const REST_BYTES_MAX: usize = 2 << 20;
/// What an error tells of a line, and of all of them; messages are cut at 16 KiB.
const TAIL_LINE_BYTES_MAX: usize = 1_000;
const TAIL_BYTES_MAX: usize = 12 << 10;

type Pipe = Pin<Box<dyn AsyncRead + Send>>;

/// The pipes of a step, and what has come out of them so far.
pub(super) struct Output<'a> {
    ctx: &'a Ctx,
    mask: &'a Mask,
    /// Standard output and standard error; `None` when it has ended.
    pipes: [Option<Pipe>; 2],
    /// The one that is asked first.
    first: usize,
    sides: [Side; 2],
    chunk: Box<[u8]>,
    tail: Tail,
}

impl<'a> Output<'a> {
    pub(super) fn new(ctx: &'a Ctx, mask: &'a Mask, tail_lines: usize) -> Self {
        Self {
            ctx,
            mask,
            pipes: [None, None],
            first: 0,
            sides: [Side::new(LogStream::Stdout), Side::new(LogStream::Stderr)],
            chunk: vec![0; CHUNK_BYTES].into_boxed_slice(),
            tail: Tail { lines: VecDeque::new(), most: tail_lines },
        }
    }

    /// Reads both until they end; once the step has ended, until they are silent or [`REST_TIME_MAX`] has passed.
    pub(super) async fn read(
        &mut self,
        out: impl AsyncRead + Send + 'static,
        err: impl AsyncRead + Send + 'static,
        mut ended: watch::Receiver<bool>,
    ) {
        self.pipes = [Some(Box::pin(out)), Some(Box::pin(err))];
        let (mut rest, mut deadline) = (REST_BYTES_MAX, None);
        while rest > 0 {
            let silence = async {
                // Whoever would say so is there for as long as this is read.
                let _ = ended.wait_for(|ended| *ended).await;
                let from = now();
                let deadline = *deadline.get_or_insert(from + REST_TIME_MAX);
                tokio::time::sleep_until(deadline.min(from + SILENCE)).await;
            };
            let read = tokio::select! {
                biased;
                read = std::future::poll_fn(|cx| self.poll_read(cx)) => read,
                () = silence => None,
            };
            let Some((side, bytes)) = read else { break };
            if *ended.borrow() {
                rest = rest.saturating_sub(bytes);
            }
            // A full chunk means that there is more; the other one has its turn.
            self.first = if bytes == CHUNK_BYTES { 1 - side } else { 0 };
            let mut lines = Vec::new();
            self.sides[side].take_in(&self.chunk[..bytes], self.mask, &mut lines);
            self.pass_on(lines).await;
        }
        let mut lines = Vec::new();
        for side in &mut self.sides {
            side.end(self.mask, &mut lines);
        }
        self.pass_on(lines).await;
    }

    /// Which pipe had something, and how much; `None` when both have ended.
    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<Option<(usize, usize)>> {
        let mut open = false;
        for at in [self.first, 1 - self.first] {
            let Some(pipe) = &mut self.pipes[at] else { continue };
            let mut chunk = ReadBuf::new(&mut self.chunk);
            match pipe.as_mut().poll_read(cx, &mut chunk) {
                Poll::Ready(Ok(())) if !chunk.filled().is_empty() => {
                    return Poll::Ready(Some((at, chunk.filled().len())));
                }
                // The end; one that cannot be read has ended, too.
                Poll::Ready(_) => self.pipes[at] = None,
                Poll::Pending => open = true,
            }
        }
        if open { Poll::Pending } else { Poll::Ready(None) }
    }

    async fn pass_on(&mut self, lines: Vec<(LogStream, Vec<u8>)>) {
        let at = self.ctx.world.clock.now();
        let mut lines = lines.into_iter();
        while lines.len() > 0 {
            let some = lines.by_ref().take(LINES_MAX).map(|(stream, text)| {
                self.tail.add(&text);
                LogLine { at, stream, text: text.into() }
            });
            let some = some.collect();
            self.ctx.push_lines(some).await;
        }
    }

    /// The last lines, as an error tells them.
    pub(super) fn last_lines(&self) -> String {
        self.tail.words()
    }
}

/// One of the pipes: what has come since the last end of a line.
struct Side {
    stream: LogStream,
    rest: Vec<u8>,
}

impl Side {
    fn new(stream: LogStream) -> Self {
        Self { stream, rest: Vec::new() }
    }

    fn take_in(&mut self, mut bytes: &[u8], mask: &Mask, lines: &mut Vec<(LogStream, Vec<u8>)>) {
        while let Some(at) = memchr(b'\n', bytes) {
            self.rest.extend_from_slice(&bytes[..at]);
            bytes = &bytes[at + 1..];
            if self.rest.last() == Some(&b'\r') {
                self.rest.pop();
            }
            self.line(mask, lines);
        }
        self.rest.extend_from_slice(bytes);
        // A secret that has not come to its end is not cut.
        let most = LOG_LINE_BYTES_MAX + mask.longest();
        if self.rest.len() > most {
            self.rest = mask.hide(&self.rest).into_owned();
            while self.rest.len() > most {
                let tail = self.rest.split_off(cut(&self.rest));
                lines.push((self.stream, std::mem::replace(&mut self.rest, tail)));
            }
        }
    }

    fn line(&mut self, mask: &Mask, lines: &mut Vec<(LogStream, Vec<u8>)>) {
        let mut line = mask.hide(&std::mem::take(&mut self.rest)).into_owned();
        while line.len() > LOG_LINE_BYTES_MAX {
            let tail = line.split_off(cut(&line));
            lines.push((self.stream, std::mem::replace(&mut line, tail)));
        }
        lines.push((self.stream, line));
    }

    /// A last line without an end is one, too.
    fn end(&mut self, mask: &Mask, lines: &mut Vec<(LogStream, Vec<u8>)>) {
        if !self.rest.is_empty() {
            self.line(mask, lines);
        }
    }
}

/// Where a line that is too long is cut: between two characters, if it is text.
fn cut(line: &[u8]) -> usize {
    let is_start = |at: &usize| line.get(*at).is_some_and(|byte| byte & 0b1100_0000 != 0b1000_0000);
    (LOG_LINE_BYTES_MAX - 3..=LOG_LINE_BYTES_MAX).rev().find(is_start).unwrap_or(LOG_LINE_BYTES_MAX)
}

/// The last lines.
struct Tail {
    lines: VecDeque<Vec<u8>>,
    most: usize,
}

impl Tail {
    fn add(&mut self, line: &[u8]) {
        if self.most == 0 {
            return;
        }
        if self.lines.len() == self.most {
            self.lines.pop_front();
        }
        self.lines.push_back(line[..line.len().min(TAIL_LINE_BYTES_MAX)].to_vec());
    }

    fn words(&self) -> String {
        let mut room = TAIL_BYTES_MAX;
        let fits = |line: &&Vec<u8>| {
            let fits = line.len() < room;
            room = room.saturating_sub(line.len() + 1);
            fits
        };
        let lines: Vec<&Vec<u8>> = self.lines.iter().rev().take_while(fits).collect();
        let mut words = String::new();
        for line in lines.into_iter().rev() {
            // A String takes whatever is written.
            let _ = write!(words, "\n{}", String::from_utf8_lossy(line));
        }
        match words.is_empty() {
            true => String::new(),
            false => format!("; its last lines:{words}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::TestBed;
    use crate::{Job, JobError};
    use serde::{Deserialize, Serialize};

    #[derive(Debug, Serialize, Deserialize)]
    struct Reading;

    impl Job for Reading {
        const KIND: &'static str = "reading";
        type Output = ();
    }

    /// A pipe with a line every 100 ms, for ever.
    struct Ticking(Pin<Box<tokio::time::Sleep>>);

    impl Ticking {
        const PERIOD: Duration = Duration::from_millis(100);

        fn new() -> Self {
            // sleeps because: the virtual clock moves from line to line
            Self(Box::pin(tokio::time::sleep(Self::PERIOD)))
        }
    }

    impl AsyncRead for Ticking {
        fn poll_read(
            mut self: Pin<&mut Self>,
            cx: &mut Context<'_>,
            buf: &mut ReadBuf<'_>,
        ) -> Poll<std::io::Result<()>> {
            std::task::ready!(self.0.as_mut().poll(cx));
            *self = Self::new();
            buf.put_slice(b"tick\n");
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_process_that_keeps_writing_after_the_step_has_ended_does_not_hold_it_up() {
        let read = async |_: Reading, ctx: Ctx| {
            let (mask, (_ended, endings)) = (Mask::of(std::iter::empty()), watch::channel(true));
            let mut output = Output::new(&ctx, &mask, 1);
            let read = output.read(Ticking::new(), tokio::io::empty(), endings);
            let in_time = tokio::time::timeout(Duration::from_secs(3_600), read).await;
            in_time.map_err(|_| JobError::new("it is read for ever"))
        };
        let began = now();
        TestBed::new().run_one(read, Reading).await.unwrap();
        let taken = began.elapsed();
        assert!((REST_TIME_MAX..=REST_TIME_MAX + Ticking::PERIOD).contains(&taken), "{taken:?}");
    }

    fn read(chunks: &[&[u8]], secrets: &[&str]) -> Vec<Vec<u8>> {
        let mask = Mask::of(secrets.iter().copied());
        let mut side = Side::new(LogStream::Stdout);
        let mut lines = Vec::new();
        for chunk in chunks {
            side.take_in(chunk, &mask, &mut lines);
        }
        side.end(&mask, &mut lines);
        lines.into_iter().map(|(_, line)| line).collect()
    }

    #[test]
    fn lines_end_where_they_end() {
        let lines = read(&[b"a\r\n\nb", b"c\xff\x1b[1m\r", b"\nlast\rline"], &[]);
        assert_eq!(lines, [&b"a"[..], b"", b"bc\xff\x1b[1m", b"last\rline"]);
    }

    #[test]
    fn long_lines_are_cut_between_characters() {
        let text = "ü".repeat(LOG_LINE_BYTES_MAX);
        let odd = format!("x{text}\n");
        let chunks: Vec<&[u8]> = odd.as_bytes().chunks(7_777).collect();
        let lines = read(&chunks, &[]);
        assert_eq!(lines.iter().map(Vec::len).collect::<Vec<_>>(), [LOG_LINE_BYTES_MAX - 1, LOG_LINE_BYTES_MAX, 2]);
        assert_eq!(lines.concat(), odd.trim_end().as_bytes());
        assert_eq!(read(&[&vec![0xBF; LOG_LINE_BYTES_MAX + 1]], &[]).len(), 2, "what is no text is cut as well");
    }

    #[test]
    fn no_cut_shows_a_part_of_a_secret() {
        for shift in 0..12 {
            let text = format!("{}hunter2{}", "x".repeat(LOG_LINE_BYTES_MAX - shift), "y".repeat(LOG_LINE_BYTES_MAX));
            let chunks: Vec<&[u8]> = text.as_bytes().chunks(5).collect();
            let all = String::from_utf8(read(&chunks, &["hunter2"]).concat()).unwrap();
            assert!(all.contains("x***y"), "cut {shift} bytes after its begin");
        }
    }

    #[test]
    fn an_error_tells_the_last_lines_and_no_more_than_fits() {
        let mut tail = Tail { lines: VecDeque::new(), most: 3 };
        for line in ["one", "two", "three", "four"] {
            tail.add(line.as_bytes());
        }
        assert_eq!(tail.words(), "; its last lines:\ntwo\nthree\nfour");
        let mut tail = Tail { lines: VecDeque::new(), most: 1_000 };
        for n in 0..1_000 {
            tail.add(format!("{n} {}", "x".repeat(5_000)).as_bytes());
        }
        let words = tail.words();
        assert!(words.len() < 16 << 10 && words.lines().last().is_some_and(|line| line.starts_with("999 ")));
    }
}
