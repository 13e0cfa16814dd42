"""Fakes and conformance checks that ship with Headway; only tests import them."""
