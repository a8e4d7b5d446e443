//! What is to be done with the bytes, and what was.

use std::time::Duration;

use parking_lot::Mutex;

/// How long pieces are held back.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Delay {
    /// On their way to the server.
    pub to_server: Duration,
    /// On their way back.
    pub to_client: Duration,
}

/// What a proxy has seen.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Counts {
    /// Connections that were accepted, ever.
    pub accepted: usize,
    /// Connections that are open now.
    pub open: usize,
    /// Connections that were cut, ever.
    pub cut: usize,
    /// Bytes passed on to the server.
    pub to_server_bytes: usize,
    /// Bytes passed on to clients.
    pub to_client_bytes: usize,
    /// Bytes of the server that were dropped.
    pub swallowed_bytes: usize,
}

/// A connection that is going to be cut, once.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cut {
    FromServer { bytes: usize },
    ToServer { bytes: usize },
    BeforeReply { requests: usize, command: Option<Vec<u8>> },
}

#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) delay: Delay,
    pub(super) swallow_replies: bool,
    pub(super) cut: Option<Cut>,
}

/// What handles and links share. No lock is held while anything waits.
#[derive(Debug, Default)]
pub(super) struct Shared {
    pub(super) plan: Mutex<Plan>,
    pub(super) counts: Mutex<Counts>,
}

/// The two ways through a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    ToServer,
    ToClient,
}

/// What becomes of one piece.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Pass,
    Drop,
    /// So many bytes go through, then the connection is cut.
    CutAfter(usize),
    /// So many bytes go through; the server finishes, the client is told nothing more.
    MuteAfter(usize),
}

impl Shared {
    pub(super) fn reset(&self) {
        *self.plan.lock() = Plan::default();
    }

    pub(super) fn delay(&self, way: Way) -> Duration {
        let delay = self.plan.lock().delay;
        match way {
            Way::ToServer => delay.to_server,
            Way::ToClient => delay.to_client,
        }
    }

    /// Decides about a piece of the server's bytes, and counts it against the cut that is armed.
    pub(super) fn fate_from_server(&self, piece_bytes: usize) -> Fate {
        let mut plan = self.plan.lock();
        if plan.swallow_replies {
            return Fate::Drop;
        }
        match &mut plan.cut {
            Some(Cut::FromServer { bytes }) if *bytes < piece_bytes => {
                let passed = *bytes;
                plan.cut = None;
                Fate::CutAfter(passed)
            }
            Some(Cut::FromServer { bytes }) => {
                *bytes -= piece_bytes;
                Fate::Pass
            }
            Some(Cut::ToServer { .. } | Cut::BeforeReply { .. }) | None => Fate::Pass,
        }
    }

    /// The same for a piece on its way to the server, and the requests that end in it: where, and their commands.
    pub(super) fn fate_to_server(&self, piece_bytes: usize, ends: &[(usize, Vec<u8>)]) -> Fate {
        let mut plan = self.plan.lock();
        match &mut plan.cut {
            Some(Cut::ToServer { bytes }) if *bytes < piece_bytes => {
                let passed = *bytes;
                plan.cut = None;
                Fate::CutAfter(passed)
            }
            Some(Cut::ToServer { bytes }) => {
                *bytes -= piece_bytes;
                Fate::Pass
            }
            Some(Cut::BeforeReply { requests, command }) => {
                let counted = |name: &[u8]| command.as_deref().is_none_or(|wanted| name.eq_ignore_ascii_case(wanted));
                for (end, _) in ends.iter().filter(|(_, name)| counted(name)) {
                    *requests -= 1;
                    if *requests == 0 {
                        plan.cut = None;
                        return Fate::MuteAfter(*end);
                    }
                }
                Fate::Pass
            }
            Some(Cut::FromServer { .. }) | None => Fate::Pass,
        }
    }
}
