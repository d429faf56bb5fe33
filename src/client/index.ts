export * from './rest';
export * from './hub-connection';
export * from './pending-changes';
export * from './run-reader';
export * from './runs-api';
