import { SLICES } from '../instruments/slices.generated';
import { addReportPart } from '../report/report-part';
import { registerSlices } from '../slice';

// What the roots of pages and of the engine do: every spec finds the instruments that are here.
registerSlices(SLICES);
SLICES.forEach(({ report }) => report && addReportPart(report));
