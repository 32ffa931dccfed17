"""A store for LMCache: chunks of KV as pages in any rung, on disk or in Redis.

LMCache's MP mode takes it as an L2 adapter of type `native_plugin`:

    {"type": "native_plugin", "module_path": "varve.lmcache", "class_name": "VarveConnector",
     "adapter_params": {"store": "redis://cache:6379", "plan": "q8_0",
                        "num_layers": 32, "num_kv_heads": 8, "head_dim": 128, "dtype": "bf16"}}

Without num_layers, num_kv_heads and head_dim chunks are kept as they are. LMCache itself is not needed to import this.
"""

from varve.lmcache.codec import ChunkCodec
from varve.lmcache.connector import VarveConnector
from varve.lmcache.stores import FolderStore, RedisStore, open_store

__all__ = ["ChunkCodec", "FolderStore", "RedisStore", "VarveConnector", "open_store"]
