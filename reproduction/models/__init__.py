"""The paper's networks that only its reproduction needs."""
