"""Usage metering for billing: counts charges by identity, limit, route and period, live and for export."""

from reconverge.hub.usage import Counts, ExportLease, NodeLoad, Period, Retention, UsageEvent, UsageKey, UsageRow
from reconverge.usage.addresses import AddressBook
from reconverge.usage.events import cloud_event, csv_lines, json_lines, stripe_meter_event
from reconverge.usage.export import Exporter, ExportRun
from reconverge.usage.meter import Meter
from reconverge.usage.periods import period_at, period_end_s, period_name, period_start_s
from reconverge.usage.reading import fleet_load, from_many_addresses, top, totals
from reconverge.usage.reporter import UsageReporter, UsageStats

__all__ = [
    "AddressBook",
    "Counts",
    "ExportLease",
    "ExportRun",
    "Exporter",
    "Meter",
    "NodeLoad",
    "Period",
    "Retention",
    "UsageEvent",
    "UsageKey",
    "UsageReporter",
    "UsageRow",
    "UsageStats",
    "cloud_event",
    "csv_lines",
    "fleet_load",
    "from_many_addresses",
    "json_lines",
    "period_at",
    "period_end_s",
    "period_name",
    "period_start_s",
    "stripe_meter_event",
    "top",
    "totals",
]
