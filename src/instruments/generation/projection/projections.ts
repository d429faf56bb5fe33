import { AggregateError } from '../../../aggregate/moment-merge';
import { Umap, type IUmapState, type IUmapSettings } from './umap';
import type { IVectors } from './features';
import { principalComponents, type IPrincipal } from './principal-components';

export type ProjectionQuestion =
  | {
      readonly kind: 'components';
      readonly points: IVectors;
      readonly components: number;
      readonly standardise: boolean;
    }
  | {
      readonly kind: 'begin';
      readonly job: number;
      readonly points: IVectors;
      readonly start: Float64Array;
      readonly request: IUmapSettings;
    }
  | { readonly kind: 'advance' | 'drop'; readonly job: number };

export type ProjectionAnswer =
  | { readonly kind: 'components'; readonly principal: IPrincipal }
  | { readonly kind: 'umap'; readonly state: IUmapState }
  | { readonly kind: 'dropped' };

/** Projects points onto planes, and retains unfinished layouts between questions to answer each soon. */
export class Projections {
  /** @throws AggregateError `lost` for a job that is not here. */
  ask(question: ProjectionQuestion): ProjectionAnswer {
    if (question.kind === 'components') {
      const { points, components, standardise } = question;
      return { kind: 'components', principal: principalComponents(points, components, standardise) };
    }
    const { job } = question;
    if (question.kind === 'drop') {
      this.jobs.delete(job);
      return { kind: 'dropped' };
    }
    if (question.kind === 'begin') {
      this.jobs.set(job, new Umap(question.points, question.start, question.request));
    }
    const umap = this.jobs.get(job);
    if (umap === undefined) {
      throw new AggregateError('What was laid out so far is gone. Ask again.', 'lost');
    }
    const state = question.kind === 'begin' ? umap.state : umap.advance();
    if (state.done >= state.total) {
      this.jobs.delete(job);
    }
    return { kind: 'umap', state };
  }

  private readonly jobs = new Map<number, Umap>();
}

/** The memory of an answer, which a worker hands over. */
export function answerBuffers(answer: ProjectionAnswer): ArrayBufferLike[] {
  if (answer.kind === 'components') {
    const { features, scores, directions } = answer.principal;
    return [features.values.buffer, scores.buffer, directions.buffer];
  }
  return answer.kind === 'umap' ? [answer.state.coordinates.buffer] : [];
}
