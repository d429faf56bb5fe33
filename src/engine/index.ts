// First, so that what follows finds what V8 lacks.
import './polyfills';
import { expose } from './expose';
import { registerJob } from './jobs';
import { planPipeline } from '../instruments/pipeline/engine/pipeline-job';
import { mapRanks, planSplits } from '../instruments/pipeline/split/engine/split-jobs';
import { makeReport } from './report-job';
import { drawStills } from './still-job';

registerJob('still', drawStills);
registerJob('report', makeReport);
registerJob('pipeline', planPipeline);
registerJob('rank_map', mapRanks);
registerJob('split', planSplits);
expose();
