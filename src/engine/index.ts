// First, so that what follows finds what V8 lacks.
import './polyfills';
import { SLICES } from '../instruments/slices.generated';
import { addReportPart } from '../report/report-part';
import { registerSlices } from '../slice';
import { expose } from './pipe';
import { registerJob } from './jobs';
import { makeReport, drawStills } from './view-jobs';

registerJob('still', drawStills);
registerJob('report', makeReport);
registerSlices(SLICES);
for (const { jobs = {}, report } of SLICES) {
  for (const [name, load] of Object.entries(jobs)) {
    registerJob(name, async (args, host) => (await load())(args, host));
  }
  if (report) {
    addReportPart(report);
  }
}
expose();
