//! What is sent: scripts, calls of scripts, and plain commands, written once into the buffer that goes to the server.

use redis::{Arg, Cmd, RedisWrite};
use std::borrow::Cow;
use std::fmt;

/// A Lua script that the server keeps under the hash of its text.
#[derive(Clone)]
pub struct Script {
    name: &'static str,
    text: Cow<'static, str>,
    sha: String,
}

impl Script {
    /// A script with a name for people.
    pub fn new(name: &'static str, text: impl Into<Cow<'static, str>>) -> Self {
        let text = text.into();
        let sha = redis::Script::new(&text).get_hash().to_owned();
        Self { name, text, sha }
    }

    /// Its name.
    pub fn name(&self) -> &'static str {
        self.name
    }

    /// Its text.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The hash under which the server knows it.
    pub fn sha(&self) -> &str {
        &self.sha
    }

    pub(super) fn load(&self) -> Cmd {
        let mut cmd = Cmd::with_capacity(3, self.text.len() + 16);
        cmd.arg("SCRIPT").arg("LOAD").arg(self.text.as_bytes());
        cmd
    }
}

impl fmt::Debug for Script {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Script").field("name", &self.name).field("sha", &self.sha).finish_non_exhaustive()
    }
}

/// A call of a script. Arguments are copied into one buffer as they come; give [`Call::reserve`] their number and size
/// when there are many.
#[derive(Clone)]
pub struct Call<'a> {
    script: &'a Script,
    cmd: Cmd,
}

impl<'a> Call<'a> {
    /// A call with all the keys that the script touches.
    pub fn new<K: AsRef<[u8]>>(script: &'a Script, keys: &[K]) -> Self {
        let bytes: usize = keys.iter().map(|key| key.as_ref().len()).sum();
        let mut cmd = Cmd::with_capacity(3 + keys.len() + 8, 7 + script.sha.len() + 4 + bytes + 128);
        cmd.write_arg(b"EVALSHA");
        cmd.write_arg(script.sha.as_bytes());
        cmd.write_arg_fmt(keys.len());
        for key in keys {
            cmd.write_arg(key.as_ref());
        }
        Self { script, cmd }
    }

    /// Makes room for so many more arguments of so many bytes together.
    pub fn reserve(&mut self, args: usize, bytes: usize) -> &mut Self {
        // The sizes are summed up there; only the first carries any.
        self.cmd.reserve_space_for_args(std::iter::once(bytes).chain(std::iter::repeat_n(0, args.saturating_sub(1))));
        self
    }

    /// Adds an argument.
    pub fn arg(&mut self, arg: impl AsRef<[u8]>) -> &mut Self {
        self.cmd.write_arg(arg.as_ref());
        self
    }

    /// Adds a number, or anything else that can be written as text, without making a string of it first.
    pub fn arg_fmt(&mut self, arg: impl fmt::Display) -> &mut Self {
        self.cmd.write_arg_fmt(arg);
        self
    }

    /// Adds arguments, with exactly the room they need.
    pub fn args<A: AsRef<[u8]>>(&mut self, args: &[A]) -> &mut Self {
        self.cmd.reserve_space_for_args(args.iter().map(|arg| arg.as_ref().len()));
        for arg in args {
            self.cmd.write_arg(arg.as_ref());
        }
        self
    }

    /// The script it calls.
    pub fn script(&self) -> &'a Script {
        self.script
    }

    pub(super) fn cmd(&self) -> &Cmd {
        &self.cmd
    }

    /// The same call with the whole text, for a server that does not keep it.
    pub(super) fn with_text(&self) -> Cmd {
        let args = self.cmd.args_iter();
        let mut cmd = Cmd::with_capacity(args.len(), self.script.text.len() + self.size());
        cmd.arg("EVAL").arg(self.script.text.as_bytes());
        for arg in args.skip(2) {
            if let Arg::Simple(arg) = arg {
                cmd.write_arg(arg);
            }
        }
        cmd
    }

    fn size(&self) -> usize {
        self.cmd.args_iter().map(|arg| if let Arg::Simple(arg) = arg { arg.len() } else { 0 }).sum()
    }
}

impl fmt::Debug for Call<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The arguments are people's data.
        f.debug_struct("Call").field("script", &self.script.name).field("bytes", &self.size()).finish()
    }
}

/// A plain command.
#[derive(Clone)]
pub struct Command(pub(super) Cmd);

impl Command {
    /// A command without arguments.
    pub fn new(name: &str) -> Self {
        Self(redis::cmd(name))
    }

    /// With one more argument.
    #[must_use]
    pub fn arg(mut self, arg: impl AsRef<[u8]>) -> Self {
        self.0.write_arg(arg.as_ref());
        self
    }

    /// Its name, for messages.
    pub fn name(&self) -> String {
        match self.0.args_iter().next() {
            Some(Arg::Simple(name)) => String::from_utf8_lossy(name).into_owned(),
            _ => String::new(),
        }
    }
}

impl fmt::Debug for Command {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Command").field(&self.name()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_takes_the_place_of_the_hash_and_nothing_else_changes() {
        let script = Script::new("s", "return 1");
        assert_eq!(script.sha(), "e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
        let mut call = Call::new(&script, &["{w}:a", "{w}:b"]);
        call.reserve(3, 10).arg(b"x\0y").arg_fmt(17).args(&[b"", b"z".as_slice()]);
        let packed = |cmd: &Cmd| {
            cmd.args_iter()
                .map(|arg| if let Arg::Simple(arg) = arg { arg.to_vec() } else { vec![] })
                .collect::<Vec<_>>()
        };
        let (short, long) = (packed(call.cmd()), packed(&call.with_text()));
        assert_eq!(short[0], b"EVALSHA");
        assert_eq!(short[1], script.sha().as_bytes());
        assert_eq!(short[2..], [b"2".as_slice(), b"{w}:a", b"{w}:b", b"x\0y", b"17", b"", b"z"].map(<[u8]>::to_vec));
        assert_eq!(long[..2], [b"EVAL".as_slice(), b"return 1"].map(<[u8]>::to_vec));
        assert_eq!(long[2..], short[2..]);
    }
}
