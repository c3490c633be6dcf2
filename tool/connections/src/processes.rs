//! How many processes a sweep of connections takes, from the limit on descriptors.

/// Descriptors of a process that are not connections, where nobody has counted
/// them: the standard ones, the keeper's, an epoll.
pub(crate) const RESERVE: u64 = 32;

/// How many processes of each kind a sweep takes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Processes {
    /// Those that connect.
    pub clients: usize,
    /// Those that accept; none where the server is another's.
    pub servers: usize,
    /// Those that hold other listening sockets.
    pub listeners: usize,
    /// Connections that each can carry.
    pub each: u64,
}

/// The numbers from which that of the processes follows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Size {
    /// Connections.
    pub open: u64,
    /// Other sockets that listen.
    pub listeners: u64,
    /// Processes that accept at the same time; 0 where nobody of ours accepts.
    pub acceptors: u64,
    /// Descriptors of each process that are no connections.
    pub reserve: u64,
    /// Descriptors that each process may have; None: as many as it likes.
    pub limit: Option<u64>,
}

impl Size {
    /// The processes; None if one could not carry a single connection.
    pub(crate) fn crew(&self) -> Option<Processes> {
        let limit = self.limit.unwrap_or(1 << 20);
        let each = limit.checked_sub(self.reserve).filter(|n| *n > 0)?;
        let needed = |n: u64| n.div_ceil(each) as usize;
        Some(Processes {
            clients: needed(self.open),
            // However unevenly they are dealt, so many can carry them all.
            servers: match self.acceptors {
                0 => 0,
                acceptors => needed(self.open) + acceptors as usize,
            },
            listeners: needed(self.listeners),
            each,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn processes_follow_from_the_limit_on_descriptors() {
        let of = |open, limit| {
            let size = Size {
                open,
                listeners: 50_000,
                acceptors: 1,
                reserve: 40,
                limit: Some(limit),
            };
            size.crew()
        };
        let million = of(1_000_000, 20_000).unwrap();
        assert_eq!(
            (million.clients, million.servers, million.each),
            (51, 52, 19_960)
        );
        assert_eq!(million.listeners, 3);
        assert_eq!(of(100, 20_000).unwrap().clients, 1);
        assert_eq!(of(1, 40), None, "not one descriptor is left");
        let alone = Size {
            open: 100,
            reserve: 1,
            ..Size::default()
        };
        assert_eq!(alone.crew().unwrap().servers, 0, "the server is another's");
    }
}
