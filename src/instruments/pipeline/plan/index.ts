export * from './check-plan';
export * from './plan-all';
export * from './simulation';
export * from './make-plan';
export * from './measured-run';
export * from './memory';
export * from './plan-shape';
