//! The link that carries bytes between ranks: MPI, or, in tests, channels.

/// A message that could not be sent or received.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct LinkError(pub String);

/// This rank's way to the others. Nothing here waits.
pub trait Link {
    /// Its number, from 0.
    fn rank(&self) -> usize;

    /// How many there are.
    fn size(&self) -> usize;

    /// Begins to send.
    ///
    /// # Errors
    /// In words for the user.
    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError>;

    /// A message that has come, if there is one, and from whom; those of one rank in
    /// the order of their sending.
    ///
    /// # Errors
    /// In words for the user.
    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError>;

    /// Whether everything sent has left.
    fn is_flushed(&mut self) -> bool;

    /// Leaves in good order, once all ranks have agreed to. May wait for them.
    fn leave(self: Box<Self>);

    /// Ends all ranks and this process at once, where the link can.
    fn abort(self: Box<Self>, code: u8);
}

impl Link for Box<dyn Link> {
    fn rank(&self) -> usize {
        (**self).rank()
    }

    fn size(&self) -> usize {
        (**self).size()
    }

    fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
        (**self).send(to, bytes)
    }

    fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
        (**self).try_receive()
    }

    fn is_flushed(&mut self) -> bool {
        (**self).is_flushed()
    }

    fn leave(self: Box<Self>) {
        (*self).leave();
    }

    fn abort(self: Box<Self>, code: u8) {
        (*self).abort(code);
    }
}

#[cfg(test)]
pub(super) mod channels {
    //! Threads stand for ranks.

    use super::{Link, LinkError};
    use std::sync::mpsc::{Receiver, Sender, channel};

    /// One rank's end.
    pub(crate) struct Wired {
        rank: usize,
        to: Vec<Sender<(usize, Vec<u8>)>>,
        inbox: Receiver<(usize, Vec<u8>)>,
    }

    /// Links between so many ranks.
    pub(crate) fn wired(size: usize) -> Vec<Wired> {
        let (to, inboxes): (Vec<_>, Vec<_>) = (0..size).map(|_| channel()).unzip();
        let ends = inboxes.into_iter().enumerate();
        ends.map(|(rank, inbox)| Wired {
            rank,
            to: to.clone(),
            inbox,
        })
        .collect()
    }

    impl Link for Wired {
        fn rank(&self) -> usize {
            self.rank
        }

        fn size(&self) -> usize {
            self.to.len()
        }

        fn send(&mut self, to: usize, bytes: Vec<u8>) -> Result<(), LinkError> {
            // One that has gone hears nothing, as on a network.
            let _ = self.to[to].send((self.rank, bytes));
            Ok(())
        }

        fn try_receive(&mut self) -> Result<Option<(usize, Vec<u8>)>, LinkError> {
            Ok(self.inbox.try_recv().ok())
        }

        fn is_flushed(&mut self) -> bool {
            true
        }

        fn leave(self: Box<Self>) {}

        fn abort(self: Box<Self>, _code: u8) {}
    }
}
