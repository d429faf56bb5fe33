export * from './client-error';
export * from './hub-connection';
export * from './hub-state';
export * from './moments-api';
export { type IRunsApiOptions } from './rest';
export * from './run-reader';
export * from './runs-api';
