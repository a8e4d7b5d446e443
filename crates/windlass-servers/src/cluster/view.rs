//! `CLUSTER NODES`: what one node says about all of them.

/// One node, as another sees it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Line {
    pub(super) port: u16,
    pub(super) is_myself: bool,
    pub(super) is_primary: bool,
    /// Neither suspected nor failed nor in a handshake.
    is_well: bool,
    is_linked: bool,
    /// The id of its primary, if it is a replica.
    pub(super) copies_from: Option<String>,
    pub(super) epoch: u64,
    pub(super) slots: Vec<(u16, u16)>,
}

impl Line {
    pub(super) fn parse_all(text: &str) -> Result<Vec<Self>, String> {
        text.lines()
            .map(|line| Self::parse(line).ok_or_else(|| format!("not a line of CLUSTER NODES: {line}")))
            .collect()
    }

    /// `<id> <ip:port@bus> <flags> <primary> <ping> <pong> <epoch> <link> <slot> …`
    fn parse(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split(' ').collect();
        let [_, address, flags, primary, _, _, epoch, link, slots @ ..] = words.as_slice() else { return None };
        let port = address.split('@').next()?.rsplit(':').next()?.parse().ok()?;
        let flags: Vec<&str> = flags.split(',').collect();
        let is = |flag: &str| flags.contains(&flag);
        Some(Self {
            port,
            is_myself: is("myself"),
            is_primary: is("master"),
            is_well: !["fail", "fail?", "handshake", "noaddr"].into_iter().any(is),
            is_linked: *link == "connected",
            copies_from: (*primary != "-").then(|| (*primary).to_owned()),
            epoch: epoch.parse().ok()?,
            // `[slot->-id]` and `[slot-<-id]` tell of a slot on its way, which is still where it was.
            slots: slots.iter().filter(|slot| !slot.starts_with('[')).map(|slot| range(slot)).collect::<Option<_>>()?,
        })
    }

    pub(super) fn owns(&self, slot: u16) -> bool {
        self.slots.iter().any(|(first, last)| (*first..=*last).contains(&slot))
    }

    /// Known for good, and in touch.
    pub(super) fn is_settled(&self) -> bool {
        self.is_well && self.is_linked
    }
}

fn range(text: &str) -> Option<(u16, u16)> {
    let (first, last) = text.split_once('-').unwrap_or((text, text));
    Some((first.parse().ok()?, last.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::Line;

    #[test]
    fn lines_tell_parts_and_slots() {
        let text = "aa 127.0.0.1:7001@17001 myself,master - 0 1 3 connected 0-10 12 [13->-bb]\n\
                    bb 127.0.0.1:7002@17002,host slave,fail? aa 0 1 3 disconnected";
        let [primary, replica] = Line::parse_all(text).unwrap().try_into().unwrap();
        assert_eq!((primary.port, primary.epoch, primary.copies_from.as_deref()), (7001, 3, None));
        assert!(primary.is_myself && primary.is_primary && primary.is_settled());
        assert!(primary.owns(0) && primary.owns(10) && primary.owns(12));
        assert!(!primary.owns(11) && !primary.owns(13));
        assert_eq!((replica.port, replica.copies_from.as_deref()), (7002, Some("aa")));
        assert!(!replica.is_myself && !replica.is_primary && !replica.is_settled() && replica.slots.is_empty());
    }

    #[test]
    fn what_is_no_line_is_an_error() {
        assert!(Line::parse_all("aa 127.0.0.1").is_err());
        assert!(Line::parse_all("aa 127.0.0.1:x@1 master - 0 1 3 connected").is_err());
    }
}
