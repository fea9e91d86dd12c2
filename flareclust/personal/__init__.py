"""Personalised models: devices whose rows are of different clusters train one model per cluster."""
