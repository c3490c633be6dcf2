//! pthread
