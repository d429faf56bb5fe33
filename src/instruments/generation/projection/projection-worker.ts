import { serve } from '../../../aggregate/worker-link';
import { answerBuffers, Projections, type ProjectionQuestion } from './projections';

const projections = new Projections();

serve((question: ProjectionQuestion) => {
  const answer = projections.ask(question);
  return [answer, answerBuffers(answer)];
});
