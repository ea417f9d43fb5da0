//! libvrnic: the libibverbs plugin of the vrnic adapter
