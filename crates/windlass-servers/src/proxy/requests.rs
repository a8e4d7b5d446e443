//! Where requests end in a stream of Redis' protocol, whichever way the stream was cut into pieces.

/// Longer than the line that opens any array or string; inline commands beyond it are counted all the same.
const LINE_MAX: usize = 64;
/// Longer than any command's name.
const NAME_MAX: usize = 32;

/// The place in one client's stream.
#[derive(Debug, Default)]
pub(super) struct Requests {
    line: Vec<u8>,
    /// Strings that the request still lacks.
    strings_left: usize,
    /// Bytes that the string still lacks, with its line end.
    bytes_left: usize,
    name: Vec<u8>,
    has_name: bool,
}

impl Requests {
    /// The requests that end in this piece: the offset after each, and the name of its command.
    pub(super) fn ends(&mut self, piece: &[u8]) -> Vec<(usize, Vec<u8>)> {
        let mut ends = Vec::new();
        let mut at = 0;
        while at < piece.len() {
            let (taken, is_end) =
                if self.bytes_left > 0 { self.take_string(&piece[at..]) } else { self.take_line(&piece[at..]) };
            at += taken;
            if is_end {
                self.has_name = false;
                ends.push((at, std::mem::take(&mut self.name)));
            }
        }
        ends
    }

    fn take_string(&mut self, rest: &[u8]) -> (usize, bool) {
        let taken = rest.len().min(self.bytes_left);
        if !self.has_name {
            // The two bytes of the line end are no part of it.
            let text = taken.min(self.bytes_left.saturating_sub(2)).min(NAME_MAX.saturating_sub(self.name.len()));
            self.name.extend_from_slice(&rest[..text]);
        }
        self.bytes_left -= taken;
        if self.bytes_left > 0 {
            return (taken, false);
        }
        self.has_name = true;
        self.strings_left -= 1;
        (taken, self.strings_left == 0)
    }

    fn take_line(&mut self, rest: &[u8]) -> (usize, bool) {
        let end = rest.iter().position(|byte| *byte == b'\n');
        let taken = end.map_or(rest.len(), |end| end + 1);
        let room = LINE_MAX.saturating_sub(self.line.len()).min(taken);
        self.line.extend_from_slice(&rest[..room]);
        if end.is_none() {
            return (taken, false);
        }
        let line = std::mem::take(&mut self.line);
        (taken, self.read_line(line.trim_ascii()))
    }

    /// Whether the line is a whole request.
    fn read_line(&mut self, line: &[u8]) -> bool {
        let number = |text: &[u8]| std::str::from_utf8(text).ok()?.parse::<usize>().ok();
        match line.split_first() {
            Some((b'*', count)) if self.strings_left == 0 => {
                self.strings_left = number(count).unwrap_or_default();
                false
            }
            Some((b'$', length)) if self.strings_left > 0 => {
                self.bytes_left = number(length).unwrap_or_default().saturating_add(2);
                false
            }
            // Words on a line, as a person types them.
            Some(_) => {
                let name = line.split(u8::is_ascii_whitespace).next().unwrap_or_default();
                self.name = name[..name.len().min(NAME_MAX)].to_vec();
                self.strings_left = 0;
                true
            }
            None => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Requests;

    const STREAM: &[u8] = b"*2\r\n$3\r\nGET\r\n$4\r\na\r\nb\r\nPING now\r\n*1\r\n$4\r\nQUIT\r\n\r\n*3\r\n$3\r\nSET\r\n$0\r\n\r\n$1\r\nv\r\n";

    #[test]
    fn ends_are_found_however_the_stream_is_cut() {
        let whole = Requests::default().ends(STREAM);
        let names: Vec<_> = whole.iter().map(|(_, name)| String::from_utf8_lossy(name).into_owned()).collect();
        assert_eq!(names, ["GET", "PING", "QUIT", "SET"]);
        assert_eq!(whole[0].0, 23);
        assert_eq!(whole[1].0, 33);
        assert_eq!(whole[3].0, STREAM.len());
        for size in 1..STREAM.len() {
            let mut requests = Requests::default();
            let mut found = Vec::new();
            for (index, piece) in STREAM.chunks(size).enumerate() {
                found.extend(requests.ends(piece).into_iter().map(|(end, name)| (index * size + end, name)));
            }
            assert_eq!(found, whole, "in pieces of {size}");
        }
    }

    #[test]
    fn bytes_of_another_protocol_do_no_harm() {
        let noise: Vec<u8> = (0..10_000_u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 13).to_le_bytes()[0]).collect();
        let mut requests = Requests::default();
        for piece in noise.chunks(97) {
            requests.ends(piece);
        }
        requests.ends(b"*99999999999999999999\r\n$99999999999999999999\r\n");
    }
}
