import '../../../src/engine/polyfills';
import { expose } from '../../../src/engine/expose';
import { registerJob } from '../../../src/engine/jobs';
import { recipes } from './recipes';

registerJob('recipes', recipes);
expose();
